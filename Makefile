# Agent-Reach. `make help` lists what can be made; `make test` is what has to be green.

SHELL := /bin/sh
.NOTPARALLEL:
.SUFFIXES:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export PATH := $(CURDIR)/node_modules/.bin:$(PATH)
DIST := node --enable-source-maps dist

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

# As in package.json; undici, which makes the calls out, needs the .1.
NODE_FLOOR := 20.18.1

# ---- what everything needs -------------------------------------------------------------------------------------------

.PHONY: check-node
check-node:
	@command -v node >/dev/null 2>&1 || { echo "Agent-Reach needs Node $(NODE_FLOOR) or newer, and no 'node' is on the PATH." >&2; exit 1; }
	@node -e 'var f = "$(NODE_FLOOR)".split("."), v = process.versions.node.split("."), i = 0; while (i < 2 && +v[i] === +f[i]) i++; process.exit(+v[i] >= +f[i] ? 0 : 1)' \
		|| { echo "Agent-Reach needs Node $(NODE_FLOOR) or newer; this is $$(node --version)." >&2; exit 1; }
	@command -v npm >/dev/null 2>&1 || { echo "Agent-Reach needs npm, which comes with Node, and no 'npm' is on the PATH." >&2; exit 1; }

# What is installed is what the lock file says: the stamp is a copy of the lock file that was installed from.
STAMP := node_modules/.installed-from
.PHONY: install
install: check-node ## Install the dependencies, if they are missing or the lock file has changed
	@cmp -s package-lock.json $(STAMP) || { npm ci --ignore-scripts --no-audit --no-fund && cp package-lock.json $(STAMP); }

.PHONY: build
build: install ## Compile to dist/ (also the type check)
	@echo "== build (types)"
	@tsc -p .
	@tsc -p control-plane/console
	@node dist/test/run/finish-build.js

# A nats-server: that of $REACH_NATS_URL, one that is here, or one that is installed now by the system's own means.
.PHONY: nats
nats: build
	@$(DIST)/deploy/local/ensure-nats.js

# One that may be killed, whatever $REACH_NATS_URL names.
.PHONY: own-nats
own-nats: build
	@$(DIST)/deploy/local/ensure-nats.js --own

# What agents written in Python need: one with pinned packages and sdk/python, in build/peers.
.PHONY: python
python: build
	@$(DIST)/deploy/local/ensure-python.js

# What the tests' agents and clients of other makers need: that, and grpcurl where it can be had.
.PHONY: peers
peers: python
	@$(DIST)/test/peers/install.js

# What the tests of the console drive: a Chromium that is here, or Debian's, which root can have installed.
.PHONY: browser
browser: build
	@$(DIST)/test/run/ensure-browser.js

# ---- run it ----------------------------------------------------------------------------------------------------------

.PHONY: dev
dev: build nats ## Start NATS, a control plane and a team of agents with their sidecars, and keep all of it up; prints the URLs
	@$(DIST)/deploy/local/ensure-python.js --if-possible
	@$(DIST)/deploy/local/dev.js

.PHONY: dev-standalone
dev-standalone: build ## The same team with one table file, without NATS and control plane
	@$(DIST)/deploy/local/dev-standalone.js

.PHONY: demo
demo: build own-nats python ## Tell the customer-service story on real processes: calls, messages, and a control plane that is killed in the end
	@$(DIST)/deploy/local/demo.js

.PHONY: demo-standalone
demo-standalone: build ## The same story with one table file, without NATS and control plane
	@$(DIST)/deploy/local/demo-standalone.js

.PHONY: sandbox
sandbox: build ## Run the ten shipped scenarios on mock providers, or one: make sandbox FILE=scenario.yaml; under other policies: WITH=policies.yaml
	@$(DIST)/bundle/main.js sandbox "$(or $(FILE),deploy/sandbox)" $(if $(WITH),--with "$(WITH)") $(if $(SEED),--seed "$(SEED)") $(if $(ONLY),--only "$(ONLY)")

.PHONY: image
image: ## Build the container image (sidecar, control plane and reachctl in one), where there is a Docker
	@docker build -f deploy/docker/Dockerfile -t agent-reach:$$(node -p 'require("./package.json").version') --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) --build-arg CREATED=$$(date -u +%Y-%m-%dT%H:%M:%SZ) .

# ---- check it --------------------------------------------------------------------------------------------------------

.PHONY: test
test: install format-check build own-nats peers browser lint unused docs-check ## Everything that has to be green: format, types, lint, unused code, docs, tests (ONLY=word: some files)
	@echo "== tests"
	@$(DIST)/test/run/tests.js $(ONLY)

.PHONY: cases
cases: build own-nats peers ## Only the numbered cases of bad input and faults; the last line counts them
	@$(DIST)/test/run/cases.js

.PHONY: attacks
attacks: build own-nats browser ## Only the attacks: forged, stolen, smuggled; the last line counts those that were refused
	@$(DIST)/test/run/attacks.js

.PHONY: format-check
format-check: install
	@echo "== format"
	@biome format .

.PHONY: lint
lint: build ## Lint: types, cycles, layers, banned globals
	@echo "== lint"
	@$(DIST)/test/lint/lint.js

.PHONY: unused
unused: install
	@echo "== unused code"
	@knip --treat-config-hints-as-errors

.PHONY: docs-check
docs-check: build
	@echo "== generated docs"
	@$(DIST)/docs/generate.js --check

.PHONY: bench-call
bench-call: build own-nats ## What a call costs, beside a bare pass-through and a direct call; also with identities and mutual TLS
	@$(DIST)/test/bench/call.js

.PHONY: bench-stream
bench-stream: build ## What a stream costs, beside a bare Node pipe: rate, memory, time to the first piece
	@$(DIST)/test/bench/stream.js

.PHONY: bench-mesh
bench-mesh: build ## What two sidecars would pay for HTTP/1.1, HTTP/2 and gRPC between them
	@$(DIST)/test/bench/mesh.js

.PHONY: bench-channel
bench-channel: build ## What 12,000 dial-in agents on one sidecar cost: memory each, and CPU for a call
	@$(DIST)/test/bench/channel.js

.PHONY: bench-decide
bench-decide: build ## What a decision costs among 1,000 providers
	@$(DIST)/test/bench/decide.js

.PHONY: bench-rules
bench-rules: build ## What finding the rule for a message costs, among 10 rules and among 1,000
	@$(DIST)/test/bench/rules.js

.PHONY: bench-push
bench-push: build own-nats ## How soon a change of the registry is in force on 203 sidecars, with 10,000 providers
	@$(DIST)/test/bench/push.js

.PHONY: bench-messages
bench-messages: build own-nats ## What a durable message costs with 12,000 connections, beside a naive hub
	@$(DIST)/test/bench/messages.js

.PHONY: drill-control
drill-control: build own-nats python ## Kill control plane, NATS and a sidecar under 500 calls a second, then under messages: none may fail or be lost
	@$(DIST)/test/drills/control.js
	@$(DIST)/test/drills/messages/control.js

.PHONY: drill-red-button
drill-red-button: build own-nats python ## Block everything on 200 sidecars: in force within a second, also with the leader killed, and without a control plane
	@$(DIST)/test/drills/red-button.js

.PHONY: drill-worker
drill-worker: build own-nats python ## Kill worker agents in the midst of their messages
	@$(DIST)/test/drills/messages/worker.js

.PHONY: drill-sidecar
drill-sidecar: build own-nats python ## Kill sidecars at five places in the life of a message, and at random
	@$(DIST)/test/drills/messages/sidecar.js

.PHONY: drill-nats
drill-nats: build own-nats python ## Kill nats-server and start it again, then keep it away for a minute while messages come in
	@$(DIST)/test/drills/messages/nats.js

.PHONY: drill-partition
drill-partition: build own-nats python ## Let nats-server stand still for 20 s
	@$(DIST)/test/drills/messages/partition.js

.PHONY: drill-slow
drill-slow: build own-nats python ## Messages to three workers of which one is 100 times slower
	@$(DIST)/test/drills/messages/slow.js

.PHONY: drill-duplicate
drill-duplicate: build own-nats python ## Submit every message three times through two sidecars, with restarts in between
	@$(DIST)/test/drills/messages/duplicate.js

.PHONY: drill-burst
drill-burst: build own-nats python ## 200 agents submit 50,000 messages at once
	@$(DIST)/test/drills/messages/burst.js

.PHONY: drill-rolling
drill-rolling: build own-nats python ## Replace sidecars, control plane and nats-server in turn, with SIGTERM, then with SIGKILL, under calls and messages
	@$(DIST)/test/drills/rolling.js

.PHONY: drills
drills: drill-worker drill-sidecar drill-nats drill-partition drill-slow drill-duplicate drill-burst drill-control drill-rolling drill-red-button ## All drills, about 17 minutes

# ---- write it --------------------------------------------------------------------------------------------------------

.PHONY: format
format: install ## Format the sources
	@biome format --write .

.PHONY: descriptors
descriptors: build ## Compile the .proto files anew, after a change of them (with grpcurl)
	@$(DIST)/test/run/write-descriptors.js

.PHONY: docs
docs: build ## Write the generated pages of docs/ anew
	@$(DIST)/docs/generate.js

.PHONY: docs-transports
docs-transports: build own-nats ## Run the conformance suites and write the matrix of docs/transports.md from what they show
	@REACH_CONFORMANCE_KEEP=1 $(DIST)/test/run/tests.js test/conformance/
	@$(DIST)/test/run/keep-matrix.js
	@$(DIST)/docs/generate.js

.PHONY: clean
clean: ## Remove what was built
	@rm -rf dist build .tap
