/**
 * The body inside the frames that another sidecar sends: its pieces without a copy, its end, and its cut with the code and
 * the words of the other end. What is not frames, or ends without the end frame, is a cut, never an end.
 */
import { Code, isCode } from '../../proto/wire/codes.ts';
import { FrameReader, type FrameSink } from '../../proto/wire/frame-reader.ts';
import { Frame, type FrameType } from '../../proto/wire/frames.ts';
import type { BodySink, BodySource } from '../call/reply.ts';

export class FramedBody implements BodySource, BodySink, FrameSink {
  readonly #source: BodySource;
  readonly #reader = new FrameReader(this, 'pieces');
  #sink: BodySink | null = null;
  #goesOn = true;
  /** What the last frame said; null = it has not come. */
  #said: Said | null = null;
  #isOver = false;

  constructor(source: BodySource) {
    this.#source = source;
  }

  pipe(sink: BodySink): void {
    this.#sink = sink;
    this.#source.pipe(this);
  }

  resume(): void {
    this.#source.resume();
  }

  cancel(code: Code, detail: string): void {
    this.#source.cancel(code, detail);
  }

  // From the connection.

  chunk(data: Buffer): boolean {
    if (this.#isOver) return true;
    this.#goesOn = true;
    const problem = this.#reader.push(data);
    if (problem !== null) this.cancel(Code.bad_response, `the other sidecar's stream cannot be read: ${problem}`);
    return this.#goesOn;
  }

  /** Told only now, though the last frame has said it: the connection is free by then, and clocks have kept an eye on it. */
  end(): void {
    if (this.#said !== null) this.#tell(this.#said);
    else
      this.#tell({
        code: Code.stream_interrupted,
        detail: this.#reader.finish() ?? 'the frames ended without an end frame',
        goesAway: false,
      });
  }

  cut(code: Code, detail: string): void {
    this.#tell(this.#said ?? { code, detail, goesAway: false });
  }

  // From the reader.

  frame(type: FrameType, payload: Buffer): void {
    // Given up in the midst of what came at once: the rest of it is nobody's.
    if (this.#isOver) return;
    if (type === Frame.data) {
      if (this.#sink !== null && !this.#sink.chunk(payload)) this.#goesOn = false;
    } else if (type === Frame.end) this.#said = WHOLE;
    else if (type === Frame.error) this.#said = saidIn(payload);
  }

  #tell(said: Said): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (said.code === Code.ok) this.#sink?.end();
    else this.#sink?.cut(said.code, said.detail, said.goesAway);
  }
}

interface Said {
  readonly code: Code;
  readonly detail: string;
  /** The other sidecar stops. */
  readonly goesAway: boolean;
}

const WHOLE: Said = { code: Code.ok, detail: '', goesAway: false };

/** An error frame is a cut whatever stands in it. */
function saidIn(payload: Buffer): Said {
  try {
    const said = JSON.parse(payload.toString('utf8')) as { code?: unknown; error?: { detail?: unknown } | null; going_away?: unknown };
    const { code, error } = said;
    const goesAway = said.going_away === true;
    const detail = typeof error?.detail === 'string' ? error.detail : '';
    if (typeof code === 'number' && isCode(code) && code !== Code.ok) return { code, detail, goesAway };
    return { code: Code.stream_interrupted, detail: `code ${String(code).slice(0, 20)} of another sidecar: ${detail}`, goesAway };
  } catch {
    return {
      code: Code.stream_interrupted,
      detail: 'the other sidecar cut the stream and gave no reason that can be read',
      goesAway: false,
    };
  }
}
