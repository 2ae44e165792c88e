/** A sidecar of the lab whose calls are recorded: mocks, virtual clock, seeded chance. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { redactionRules } from '../../base/redact.ts';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import { Call, type HeaderView } from '../../sidecar/call/call.ts';
import type { BodySource } from '../../sidecar/call/reply.ts';
import { readScenario } from '../../sidecar/lab/read-scenario.ts';
import { tokenOf } from '../../sidecar/lab/tokens.ts';
import { World } from '../../sidecar/lab/world.ts';
import { outbound } from '../../sidecar/pipeline.ts';
import { Recorder } from '../../sidecar/record/recorder.ts';
import type { RecordingSettings } from '../../sidecar/recording-config.ts';

export interface Asked {
  readonly caller?: string;
  readonly name: string;
  readonly body?: unknown;
  readonly bytes?: Buffer;
  readonly type?: string;
  readonly headers?: HeaderView;
  readonly stream?: boolean;
  readonly leaveAfterMs?: number;
}

const NOTHING_KEPT = { headers: [], query: [], json: [] };

export class RecordedWorld {
  readonly world: World;
  readonly recorder: Recorder;
  readonly folder: string;
  readonly warnings: string[] = [];
  readonly #outbound: ReturnType<Recorder['outbound']>;

  /** @param text a scenario: its table, mocks and sidecar; one step that nobody runs, with the callers */
  constructor(text: string, settings: Partial<RecordingSettings> = {}, keep: object = NOTHING_KEPT, folder: string | null = null) {
    const reading = readScenario(text, 'world.yaml');
    if ('problems' in reading) throw new Error(JSON.stringify(reading.problems));
    const rules = redactionRules(keep);
    if (typeof rules === 'string') throw new Error(rules);
    this.world = new World(reading.scenario);
    this.folder = folder ?? mkdtempSync(join(tmpdir(), 'reach-record-'));
    this.recorder = new Recorder(
      {
        isOn: true,
        keep: rules,
        filter: { share: 1, capability: '*', caller: '', codes: [], failedOnly: false },
        folder: null,
        maxBytes: 1 << 30,
        fileBytes: 1 << 29,
        maxAgeMs: 86_400_000,
        bodyBytes: 65_536,
        streamBytes: 4_096,
        cpu: 1,
        ...settings,
      },
      reading.scenario.config,
      this.folder,
      this.world.clock,
      (words) => this.warnings.push(words),
    );
    this.recorder.serve(this.world.engine);
    this.#outbound = this.recorder.outbound(outbound);
  }

  async call(asked: Asked): Promise<Call> {
    return (await this.calls([asked]))[0] as Call;
  }

  /** All of them at once. */
  async calls(asked: readonly Asked[]): Promise<Call[]> {
    const { clock } = this.world;
    const begun = asked.map((one) => this.#begin(one));
    await clock.advance(0);
    while (!begun.every(({ call }) => call.settled)) {
      const next = clock.nextAt();
      if (next === null) break;
      await clock.advanceTo(next);
    }
    await Promise.all(begun.map(({ running }) => running));
    return begun.map(({ call }) => call);
  }

  #begin(asked: Asked): { readonly call: Call; readonly running: Promise<void> } {
    const { caller = 'crm.web.1', name, body, bytes, type = 'application/json', headers = {}, stream = false, leaveAfterMs } = asked;
    const { clock, engine, ids } = this.world;
    const shown = { authorization: `Bearer ${tokenOf(caller)}`, 'content-type': type, ...headers };
    const sent = bytes ?? Buffer.from(body === undefined ? '{}' : JSON.stringify(body));
    const call = new Call('sandbox', name, shown, sent, type, stream, clock);
    readTraceContext(call, undefined, undefined, ids);
    if (leaveAfterMs !== undefined) clock.after(leaveAfterMs, () => call.cancel());
    const running = this.#outbound(engine, call).then(() => {
      const source: BodySource | null = call.bodyOpen ? (call.reply?.stream ?? null) : null;
      source?.pipe({ chunk: () => true, end: () => undefined, cut: () => undefined });
    });
    return { call, running };
  }

  /** Where it lies now; nothing more is recorded. */
  async written(): Promise<string> {
    await this.recorder.close();
    return this.folder;
  }

  async remove(): Promise<void> {
    await this.recorder.close();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
