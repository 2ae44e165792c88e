/** `top`: the capabilities of the fleet, live. At a terminal a page that is drawn anew and obeys keys; elsewhere, and with `--once`, one look. */
import { type Command, Option } from 'commander';
import { parseDuration } from '../../base/duration.ts';
import type { Timer } from '../../base/clock.ts';
import { coversName } from '../../proto/language/covers.ts';
import type { OverviewAnswer } from '../overview/overview-shapes.ts';
import { Exit, Failed } from './client.ts';
import type { Context } from './context.ts';
import type { Act, Options } from './program.ts';
import { isUnicode, paintFor, Screen, type Terminal, widthFor } from './terminal.ts';
import { type Sort, SORTS, topWords } from './top-view.ts';

const KEYS: Readonly<Record<string, Sort>> = { w: 'worst', c: 'calls', e: 'errors', 5: 'p95', 9: 'p99', i: 'in_flight', n: 'name' };
const HELP = 'q quit · w worst, c calls, e errors, 5 P95, 9 P99, i in flight, n name · space stop and go on · up, down';
const LEAST_INTERVAL_MS = 500;
/** As many as one looks at. */
const MOST_ROWS = '1000';

export function topCommands(program: Command, act: Act): void {
  program
    .command('top')
    .description('capabilities live: calls a second, errors, durations, in flight, breakers; what is wrong first')
    .option('--once', 'one look, and end; so it is too where stdout is no terminal')
    .addOption(new Option('--sort <by>', 'in which order').choices(SORTS).default('worst'))
    .option('--capability <name>', 'only those: a name, or a pattern such as crm.*')
    .option('--interval <duration>', 'how often', '2s')
    .action(act(top));
}

async function top(context: Context, _args: readonly string[], options: Options): Promise<void> {
  const everyMs = parseDuration(String(options['interval']));
  if (typeof everyMs === 'string') throw new Failed(Exit.usage, [`--interval: ${everyMs}`]);
  if (everyMs < LEAST_INTERVAL_MS) throw new Failed(Exit.usage, [`--interval must be ${LEAST_INTERVAL_MS} ms or more`]);
  const sort = options['sort'] as Sort;
  const pattern = typeof options['capability'] === 'string' ? options['capability'] : null;
  const { terminal } = context.io;
  if (terminal === undefined || options['once'] === true || context.json) {
    const answer = await look(context, pattern);
    context.show<OverviewAnswer>(answer, (shown) => words(context, shown, sort, 0, '', Number.POSITIVE_INFINITY));
    return;
  }
  await new Live(context, terminal, pattern, sort, everyMs).run();
}

async function look(context: Context, pattern: string | null, abort: AbortController | null = null): Promise<OverviewAnswer> {
  const answer = (await context.client.call({ path: '/v1/overview', query: { limit: MOST_ROWS } }, abort)) as OverviewAnswer;
  return { ...answer, capabilities: answer.capabilities.filter(({ capability }) => coversName(pattern, capability)) };
}

function words({ io }: Context, answer: OverviewAnswer, sort: Sort, from: number, note: string, rows: number): string {
  const look = {
    width: widthFor(io.terminal, io.env),
    rows,
    paint: paintFor(io.terminal, io.env),
    unicode: isUnicode(io.env),
    sort,
    from,
    note,
  };
  return topWords(answer, look);
}

class Live {
  readonly #context: Context;
  readonly #terminal: Terminal;
  readonly #pattern: string | null;
  readonly #everyMs: number;
  #sort: Sort;
  #from = 0;
  #isStopped = false;
  #answer: OverviewAnswer | null = null;
  #trouble = '';
  #timer: Timer | null = null;
  /** The look that is under way. */
  #asking: AbortController | null = null;
  #isEnded = false;
  #done: (failure: Error | null) => void = () => {};

  constructor(context: Context, terminal: Terminal, pattern: string | null, sort: Sort, everyMs: number) {
    this.#context = context;
    this.#terminal = terminal;
    this.#pattern = pattern;
    this.#sort = sort;
    this.#everyMs = everyMs;
  }

  async run(): Promise<void> {
    // The first one before the page is taken: what is wrong then is said where one reads it.
    this.#answer = await look(this.#context, this.#pattern);
    const ended = new Promise<Error | null>((done) => {
      this.#done = done;
    });
    this.#terminal.write(Screen.enter);
    const stops = [this.#terminal.keys((key) => this.#pressed(key)), this.#terminal.resized(() => this.#draw())];
    this.#draw();
    this.#again();
    const failure = await ended;
    for (const stop of stops) stop();
    this.#terminal.write(Screen.leave);
    if (failure !== null) throw failure;
  }

  /** From here on nothing is asked and nothing is written: the page is the shell's again. */
  #end(failure: Error | null): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#timer?.cancel();
    this.#asking?.abort();
    this.#done(failure);
  }

  #again(): void {
    if (this.#isEnded) return;
    this.#timer = this.#context.io.clock.after(this.#everyMs, () => void this.#look().then(() => this.#again()));
  }

  async #look(): Promise<void> {
    if (this.#isStopped || this.#isEnded) return;
    this.#asking = new AbortController();
    try {
      this.#answer = await look(this.#context, this.#pattern, this.#asking);
      this.#trouble = '';
    } catch (error) {
      if (this.#isEnded) return;
      // A replica may be away for a moment; a refusal stays one.
      if (!(error instanceof Failed) || error.exit !== Exit.unreachable)
        return this.#end(error instanceof Error ? error : new Error(String(error)));
      this.#trouble = error.lines[0] ?? 'the control plane cannot be reached';
    }
    this.#draw();
  }

  #pressed(key: string): void {
    const sort = KEYS[key];
    if (key === 'q' || key === 'ctrl-c' || key === 'escape') return this.#end(null);
    if (sort !== undefined) {
      this.#sort = sort;
      this.#from = 0;
    } else if (key === 'space') this.#isStopped = !this.#isStopped;
    else if (key === 'down' || key === 'page-down') this.#scroll(key === 'down' ? 1 : 20);
    else if (key === 'up' || key === 'page-up') this.#scroll(key === 'up' ? -1 : -20);
    this.#draw();
  }

  #scroll(by: number): void {
    const last = Math.max(0, (this.#answer?.capabilities.length ?? 0) - 1);
    this.#from = Math.min(last, Math.max(0, this.#from + by));
  }

  #draw(): void {
    if (this.#answer === null || this.#isEnded) return;
    const note = this.#trouble !== '' ? `old: ${this.#trouble}` : `${this.#isStopped ? 'STOPPED · ' : ''}by ${this.#sort} · ${HELP}`;
    const text = words(this.#context, this.#answer, this.#sort, this.#from, note, this.#terminal.rows - 1);
    const lines = text.split('\n').slice(0, this.#terminal.rows - 1);
    this.#terminal.write(`${Screen.home}${lines.map((line) => `${line}${Screen.clearLine}`).join('\r\n')}${Screen.clearBelow}`);
  }
}
