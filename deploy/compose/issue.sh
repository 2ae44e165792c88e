#!/bin/sh
# Issues what is not there yet: a token for each sidecar, by which it is given the control plane's word for its agents, and one for
# the agent beside it, which counts at that sidecar alone. Runs in the image, once; again, it changes nothing.
set -eu
REACH_TOKEN=$(cat "$REACH_TOKEN_FILE")
export REACH_TOKEN
folder=${REACH_FOLDER:-/run/reach}
for pair in order:shop.order.1 desk:shop.desk.1; do
  sidecar=${pair%%:*}
  [ -s "$folder/$sidecar/sidecar-token" ] || reachctl sidecar add "$sidecar" --out "$folder/$sidecar/sidecar-token" --reason compose
  [ -s "$folder/$sidecar/agent-token" ] || reachctl agent add "${pair#*:}" --home "$sidecar" --out "$folder/$sidecar/agent-token" --reason compose
done
