/**
 * The reader of the stream bench, in a process of its own: asks for one stream and counts what comes, or for many small
 * ones and times their first piece. A stream that is not whole, to the byte, is an error.
 */
import { Agent, type IncomingMessage, request as ask } from 'node:http';
import { FrameReader } from '../../../proto/wire/frame-reader.ts';
import { Frame, FRAMES_TYPE } from '../../../proto/wire/frames.ts';

export interface StreamTarget {
  readonly name: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

export type StreamOrder =
  | { readonly do: 'flood'; readonly target: StreamTarget; readonly mib: number }
  /** One small stream from each target in turn, `count` times. */
  | { readonly do: 'first'; readonly targets: readonly StreamTarget[]; readonly count: number };

export interface Flood {
  readonly elapsedMs: number;
  /** null = every byte and the proper end came. */
  readonly problem: string | null;
}

export interface Firsts {
  /** By target, in the order of the targets: ms from the request to the first piece of the body. */
  readonly firstMs: readonly (readonly number[])[];
  readonly problem: string | null;
}

const agent = new Agent({ keepAlive: true, keepAliveMsecs: 60_000 });

function open(target: StreamTarget, mib: number, heard: (answer: IncomingMessage) => void, failed: (error: Error) => void): void {
  const body = JSON.stringify({ mib });
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)), ...target.headers };
  const request = ask(target.url, { method: 'POST', agent, headers }, heard);
  request.on('error', failed);
  request.end(body);
}

function flood(target: StreamTarget, mib: number): Promise<Flood> {
  return new Promise((done) => {
    const startedAt = performance.now();
    const finish = (problem: string | null): void => done({ elapsedMs: performance.now() - startedAt, problem });
    open(
      target,
      mib,
      (answer) => {
        let bytes = 0;
        let problem: string | null = answer.statusCode === 200 ? null : `${target.name}: HTTP ${answer.statusCode}`;
        const isFramed = answer.headers['content-type'] === FRAMES_TYPE;
        const reader = new FrameReader(
          {
            frame: (type, payload) => {
              if (type === Frame.data) bytes += payload.length;
            },
          },
          'pieces',
        );
        answer.on('data', (chunk: Buffer) => {
          if (isFramed) problem ??= reader.push(chunk);
          else bytes += chunk.length;
        });
        answer.on('error', (error) => finish(`${target.name}: ${error.message}`));
        answer.on('end', () => {
          if (isFramed) problem ??= reader.finish();
          if (bytes !== mib * 1_048_576) problem ??= `${target.name}: ${bytes} bytes of ${mib} MiB`;
          finish(problem);
        });
      },
      (error) => finish(`${target.name}: ${error.message}`),
    );
  });
}

/** Milliseconds to the first piece; -1 = it failed. */
function first(target: StreamTarget): Promise<number> {
  return new Promise((done) => {
    const startedAt = performance.now();
    let firstMs = -1;
    open(
      target,
      0,
      (answer) => {
        answer.on('data', () => {
          if (firstMs < 0 && answer.statusCode === 200) firstMs = performance.now() - startedAt;
        });
        answer.on('error', () => done(-1));
        answer.on('end', () => done(firstMs));
      },
      () => done(-1),
    );
  });
}

async function firsts(targets: readonly StreamTarget[], count: number): Promise<Firsts> {
  const firstMs: number[][] = targets.map(() => []);
  for (let i = 0; i < count; i++)
    for (const [at, target] of targets.entries()) {
      const ms = await first(target);
      if (ms < 0) return { firstMs, problem: `${target.name}: a small stream failed` };
      (firstMs[at] as number[]).push(ms);
    }
  return { firstMs, problem: null };
}

async function obey(order: StreamOrder): Promise<void> {
  process.send?.(order.do === 'flood' ? await flood(order.target, order.mib) : await firsts(order.targets, order.count));
}

if (process.channel !== undefined) {
  process.on('message', (order: StreamOrder) => void obey(order));
  process.on('disconnect', () => process.exit());
  process.send?.({ port: 0 });
}
