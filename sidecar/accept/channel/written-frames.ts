/**
 * The frames in what a connection writes, whole and one by one: without a mask, since they are ours. A large one is written in many
 * slices; they are kept apart until all have come, and joined once.
 */
const SHORT_HEAD = 2;

export class WrittenFrames {
  /** Not taken yet. */
  #slices: Buffer[] = [];
  #bytes = 0;
  /** As many as the first frame has; 0 = its head is not whole. */
  #needed = 0;

  push(slice: Buffer): void {
    this.#slices.push(slice);
    this.#bytes += slice.length;
  }

  /** Null = none is whole. */
  take(): Buffer | null {
    if (this.#bytes === 0 || this.#bytes < this.#needed) return null;
    const bytes = this.#joined();
    this.#needed = frameLength(bytes);
    if (this.#needed === 0 || this.#needed > bytes.length) return null;
    const frame = bytes.subarray(0, this.#needed);
    this.#bytes -= frame.length;
    this.#slices = this.#bytes === 0 ? [] : [bytes.subarray(frame.length)];
    this.#needed = 0;
    return frame;
  }

  #joined(): Buffer {
    if (this.#slices.length > 1) this.#slices = [Buffer.concat(this.#slices, this.#bytes)];
    return this.#slices[0] as Buffer;
  }
}

/** Before the payload. */
export function headLength(frame: Buffer): number {
  const short = (frame[1] as number) & 0x7f;
  return SHORT_HEAD + (short === 126 ? 2 : short === 127 ? 8 : 0);
}

/** Of the frame that begins here; 0 = its head is not whole. */
function frameLength(bytes: Buffer): number {
  if (bytes.length < SHORT_HEAD) return 0;
  const head = headLength(bytes);
  if (bytes.length < head) return 0;
  const short = (bytes[1] as number) & 0x7f;
  if (short === 126) return head + bytes.readUInt16BE(2);
  if (short === 127) return head + bytes.readUInt32BE(2) * 0x1_0000_0000 + bytes.readUInt32BE(6);
  return head + short;
}
