/** A name server on UDP that answers every A question with the addresses it is told, and has no others. */
import { createSocket, type Socket } from 'node:dgram';

const TYPE_A = 1;

export class DnsStub {
  addresses: readonly string[];
  /** Questions for an A record so far. */
  asked = 0;
  readonly #socket: Socket;

  private constructor(addresses: readonly string[]) {
    this.addresses = addresses;
    this.#socket = createSocket('udp4');
    this.#socket.on('message', (question, from) => this.#socket.send(this.#answer(question), from.port, from.address));
  }

  static async listen(addresses: readonly string[]): Promise<DnsStub> {
    const stub = new DnsStub(addresses);
    await new Promise<void>((done) => stub.#socket.bind(0, '127.0.0.1', done));
    return stub;
  }

  get address(): string {
    return `127.0.0.1:${this.#socket.address().port}`;
  }

  close(): Promise<void> {
    return new Promise((done) => this.#socket.close(() => done()));
  }

  #answer(question: Buffer): Buffer {
    let end = 12;
    while (question[end] !== 0) end += (question[end] as number) + 1;
    const asked = question.subarray(12, end + 5);
    const isA = question.readUInt16BE(end + 1) === TYPE_A;
    if (isA) this.asked++;
    const records = isA ? this.addresses : [];
    const head = Buffer.alloc(12);
    question.copy(head, 0, 0, 2);
    head.writeUInt16BE(0x8180, 2);
    head.writeUInt16BE(1, 4);
    head.writeUInt16BE(records.length, 6);
    // Name by pointer to the question, type A, class IN, TTL 1 s, four bytes.
    const parts = records.map((address) => Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, ...address.split('.').map(Number)]));
    return Buffer.concat([head, asked, ...parts]);
  }
}
