/**
 * Durable pull consumers over requests: making one and reading back what the server made of it, listing, deleting. A consumer
 * whose times are not what was asked for would redeliver too early or never, so a difference is a failure and not a warning.
 */
import { type ConsumerFacts, type ConsumerSpec, consumerFacts, nameProblem, specProblem, wireConsumer } from './consumer.ts';
import { configIn, differences, isJson, NO_SUCH_CONSUMER, NO_SUCH_STREAM, whole } from './jetstream.ts';
import { type Asking, askJson, type Failed } from './jetstream-api.ts';

export type ConsumerReady = { readonly facts: ConsumerFacts; readonly change: 'created' | 'updated' | 'none' } | Failed;

export class Consumers {
  readonly #asking: Asking;

  constructor(asking: Asking) {
    this.#asking = asking;
  }

  async ensure(spec: ConsumerSpec): Promise<ConsumerReady> {
    const what = `the consumer ${spec.name} of ${spec.stream}`;
    const problem = specProblem(spec);
    if (problem !== null) return { failed: `${what}: ${problem}` };
    const wanted = wireConsumer(spec);
    const found = await this.#info(spec.stream, spec.name);
    if (found !== null && 'failed' in found) return found;
    if (found !== null && differences(wanted, configIn(found.json)).length === 0)
      return { facts: consumerFacts(found.json), change: 'none' };
    // one verb makes and changes, in all versions
    const config = found === null ? wanted : { ...configIn(found.json), ...wanted };
    const made = await askJson(this.#asking, `CONSUMER.DURABLE.CREATE.${spec.stream}.${spec.name}`, { stream_name: spec.stream, config });
    if ('failed' in made) return { failed: `${what}: ${made.failed}` };
    const back = await this.#info(spec.stream, spec.name);
    if (back === null) return { failed: `${what} is gone again as soon as it was made` };
    if ('failed' in back) return back;
    const different = differences(wanted, configIn(back.json));
    if (different.length > 0) return { failed: `${what} is not what it should be: ${different.join('; ')}` };
    return { facts: consumerFacts(back.json), change: found === null ? 'created' : 'updated' };
  }

  async delete(stream: string, name: string): Promise<boolean | Failed> {
    const problem = nameProblem(stream, name);
    if (problem !== null) return { failed: problem };
    const gone = await askJson(this.#asking, `CONSUMER.DELETE.${stream}.${name}`, null);
    if (!('failed' in gone)) return true;
    return isAbsent(gone.problem?.errCode) ? false : { failed: gone.failed };
  }

  async facts(stream: string, name: string): Promise<ConsumerFacts | null | Failed> {
    const problem = nameProblem(stream, name);
    if (problem !== null) return { failed: problem };
    const found = await this.#info(stream, name);
    return found === null || 'failed' in found ? found : consumerFacts(found.json);
  }

  async list(stream: string): Promise<readonly ConsumerFacts[] | Failed> {
    const problem = nameProblem(stream, stream);
    if (problem !== null) return { failed: problem };
    const all = new Map<string, ConsumerFacts>();
    for (let offset = 0, total = 1; offset < total; ) {
      const page = await askJson(this.#asking, `CONSUMER.LIST.${stream}`, { offset });
      if ('failed' in page) return { failed: page.failed };
      const { consumers } = page.json;
      if (!Array.isArray(consumers) || consumers.length === 0) break;
      for (const each of consumers) {
        if (!isJson(each)) continue;
        const facts = consumerFacts(each);
        all.set(facts.name, facts);
      }
      offset += consumers.length;
      total = whole(page.json['total']);
    }
    return [...all.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async #info(stream: string, name: string): Promise<{ readonly json: Readonly<Record<string, unknown>> } | null | Failed> {
    const info = await askJson(this.#asking, `CONSUMER.INFO.${stream}.${name}`, null);
    if (!('failed' in info)) return info;
    return isAbsent(info.problem?.errCode) ? null : { failed: info.failed };
  }
}

function isAbsent(errCode: number | undefined): boolean {
  return errCode === NO_SUCH_CONSUMER || errCode === NO_SUCH_STREAM;
}
