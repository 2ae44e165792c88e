/**
 * A real OpenTelemetry collector, built from its own modules by `make peers`: it takes OTLP and writes what it got into a file, as
 * OTLP JSON. Built with Go; where there is a Go, or in CI, a missing one is a failure.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { goProgram } from './grpcurl.ts';
import { repoFile } from './paths.ts';
import { waitUntil } from './settle.ts';

const SOURCES = repoFile('test', 'peers', 'collector');
const FOLDER = repoFile('build', 'peers', 'bin');
const PROGRAM = join(FOLDER, 'otel-collector');
const STAMP = join(FOLDER, 'otel-collector.stamp');
const INSTALL_MS = 300_000;

function digest(): string {
  const hash = createHash('sha256');
  for (const file of ['main.go', 'go.mod', 'go.sum']) hash.update(readFileSync(join(SOURCES, file)));
  return hash.digest('hex');
}

/** The program's path; null = `make peers` could not build it. */
export function otelCollector(): string | null {
  return existsSync(PROGRAM) && existsSync(STAMP) && readFileSync(STAMP, 'utf8') === digest() ? PROGRAM : null;
}

/** Builds it; null when there is no Go, or the build failed (which is told on stderr). */
export function installOtelCollector(): string | null {
  const go = goProgram();
  if (go === null) return null;
  mkdirSync(FOLDER, { recursive: true });
  const done = spawnSync(go, ['build', '-o', PROGRAM, '.'], { cwd: SOURCES, stdio: ['ignore', 'ignore', 'inherit'], timeout: INSTALL_MS });
  if (done.status !== 0) return null;
  writeFileSync(STAMP, digest());
  return PROGRAM;
}

/** An attribute's value as OTLP JSON has it. */
interface Value {
  readonly stringValue?: string;
  readonly intValue?: string;
  readonly boolValue?: boolean;
  readonly doubleValue?: number;
}

type Plain = Readonly<Record<string, string | number | boolean>>;

export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly name: string;
  /** 1 internal, 2 server, 3 client, 4 producer, 5 consumer. */
  readonly kind: number;
  readonly startNs: bigint;
  readonly endNs: bigint;
  /** 0 unset, 1 ok, 2 error. */
  readonly status: number;
  readonly attributes: Plain;
  readonly resource: Plain;
}

interface Teardown {
  teardown(end: () => void | Promise<void>): unknown;
}

export class OtelCollector {
  /** Where it takes OTLP over HTTP. */
  readonly url: string;
  readonly #file: string;
  readonly #child: ChildProcess;
  #said = '';

  static async start(t: Teardown, program: string): Promise<OtelCollector> {
    const folder = mkdtempSync(join(tmpdir(), 'reach-test-collector-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const port = await freePort();
    const file = join(folder, 'spans.json');
    const settings = join(folder, 'collector.yaml');
    writeFileSync(
      settings,
      `receivers:
  otlp:
    protocols:
      http: {endpoint: "127.0.0.1:${port}"}
exporters:
  file: {path: "${file}", flush_interval: 100ms}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], exporters: [file]}
`,
    );
    const child = spawn(program, ['--config', `file:${settings}`], { stdio: ['ignore', 'ignore', 'pipe'] });
    const collector = new OtelCollector(`http://127.0.0.1:${port}`, file, child);
    t.teardown(() => collector.stop());
    await waitUntil('the collector listens', async () => (await fetch(`${collector.url}/v1/traces`).catch(() => null)) !== null, 20_000);
    return collector;
  }

  private constructor(url: string, file: string, child: ChildProcess) {
    this.url = url;
    this.#file = file;
    this.#child = child;
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#said = (this.#said + text).slice(-8_192);
    });
  }

  /** The end of what it has logged. */
  get said(): string {
    return this.#said;
  }

  /** All that it has got so far. */
  spans(): ReceivedSpan[] {
    if (!existsSync(this.#file)) return [];
    const lines = readFileSync(this.#file, 'utf8').split('\n');
    return lines.filter((line) => line.endsWith('}')).flatMap((line) => spansIn(JSON.parse(line) as Exported));
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = new Promise<void>((done) => this.#child.once('close', () => done()));
    this.#child.kill('SIGKILL');
    await ended;
  }
}

type Attributes = readonly { readonly key: string; readonly value: Value }[];

interface Exported {
  readonly resourceSpans?: readonly {
    readonly resource?: { readonly attributes?: Attributes };
    readonly scopeSpans?: readonly { readonly spans?: readonly ExportedSpan[] }[];
  }[];
}

interface ExportedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind?: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes?: Attributes;
  readonly status?: { readonly code?: number };
}

function spansIn({ resourceSpans = [] }: Exported): ReceivedSpan[] {
  return resourceSpans.flatMap(({ resource, scopeSpans = [] }) =>
    scopeSpans.flatMap(({ spans = [] }) =>
      spans.map((span) => ({
        traceId: span.traceId,
        spanId: span.spanId,
        parentSpanId: span.parentSpanId ?? '',
        name: span.name,
        kind: span.kind ?? 0,
        startNs: BigInt(span.startTimeUnixNano),
        endNs: BigInt(span.endTimeUnixNano),
        status: span.status?.code ?? 0,
        attributes: plain(span.attributes),
        resource: plain(resource?.attributes),
      })),
    ),
  );
}

function plain(attributes: Attributes = []): Plain {
  return Object.fromEntries(
    attributes.map(({ key, value }) => [
      key,
      value.stringValue ?? (value.intValue === undefined ? (value.doubleValue ?? value.boolValue ?? '') : Number(value.intValue)),
    ]),
  );
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise<void>((done) => server.once('listening', () => done()));
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((done) => server.close(() => done()));
  return port;
}
