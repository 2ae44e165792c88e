/**
 * A certificate, its key and the authorities that are believed, from files that may change while the program runs. They are
 * looked at now and then and read whole; what does not fit together (a key of another certificate, half a file) changes
 * nothing, is said, and is looked at again: whoever writes three files one after another is in between for a moment.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import type { Clock, Timer } from './clock.ts';

export interface TlsPaths {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

export interface TlsMaterial {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
  /** The first certificate of `cert`. */
  readonly own: X509Certificate;
}

export class TlsFiles {
  readonly #paths: TlsPaths;
  readonly #clock: Clock;
  readonly #everyMs: number;
  readonly #judge: (material: TlsMaterial) => string | null;
  #material: TlsMaterial;
  #timer: Timer | null = null;
  /** Counts up with every change that came into force. */
  version = 1;
  /** Why what stands in the files is not in force; '' = it is. */
  trouble = '';
  onChange: (material: TlsMaterial) => void = () => {};
  onTrouble: (why: string) => void = () => {};

  /**
   * Throws with a sentence when the files cannot be used as they are.
   * @param judge what else is against using them; null = nothing.
   */
  constructor(paths: TlsPaths, clock: Clock, everyMs: number, judge: (material: TlsMaterial) => string | null) {
    this.#paths = paths;
    this.#clock = clock;
    this.#everyMs = everyMs;
    this.#judge = judge;
    const read = this.#read();
    if (typeof read === 'string') throw new Error(read);
    this.#material = read;
  }

  get material(): TlsMaterial {
    return this.#material;
  }

  start(): void {
    this.#timer ??= this.#clock.after(this.#everyMs, () => {
      this.#timer = null;
      this.look();
      this.start();
    });
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }

  look(): void {
    const read = this.#read();
    if (typeof read === 'string') {
      if (read !== this.trouble) this.onTrouble(read);
      this.trouble = read;
      return;
    }
    this.trouble = '';
    const { cert, key, ca } = this.#material;
    if (read.cert === cert && read.key === key && read.ca === ca) return;
    this.#material = read;
    this.version++;
    this.onChange(read);
  }

  #read(): TlsMaterial | string {
    const texts: Record<keyof TlsPaths, string> = { cert: '', key: '', ca: '' };
    for (const what of ['cert', 'key', 'ca'] as const) {
      try {
        texts[what] = readFileSync(this.#paths[what], 'utf8');
      } catch (error) {
        return `${this.#paths[what]} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`;
      }
    }
    let own: X509Certificate;
    try {
      own = new X509Certificate(texts.cert);
    } catch {
      return `${this.#paths.cert} holds no certificate in PEM`;
    }
    try {
      if (!own.checkPrivateKey(createPrivateKey(texts.key)))
        return `${this.#paths.key} is the key of another certificate than ${this.#paths.cert}`;
    } catch {
      return `${this.#paths.key} holds no private key in PEM`;
    }
    if (!texts.ca.includes('-----BEGIN CERTIFICATE-----')) return `${this.#paths.ca} holds no certificate in PEM`;
    const material: TlsMaterial = { ...texts, own };
    try {
      createSecureContext({ cert: texts.cert, key: texts.key, ca: texts.ca });
    } catch (error) {
      return `${this.#paths.cert}, ${this.#paths.key} and ${this.#paths.ca} cannot be used together (${(error as NodeJS.ErrnoException).code ?? 'error'})`;
    }
    return this.#judge(material) ?? material;
  }
}
