/**
 * `stop-bleeding` and `override`: the red button. Through any replica of the control plane, or with `--nats` straight into the
 * stream when none is left. What is made lasts an hour unless something else is said; what covers everything wants `--yes`.
 */
import { readFileSync } from 'node:fs';
import { basename, extname } from 'node:path';
import { type Command, Option } from 'commander';
import { parseDuration } from '../../base/duration.ts';
import { printable } from '../../base/log.ts';
import type { BusCredential } from '../../base/nats-link.ts';
import { systemRandom } from '../../base/random.ts';
import type { OverrideEntry } from '../../proto/wire/overrides.ts';
import type { OverrideLifted, OverrideOrdered, OverridesAnswer, OverrideShown, OverrideTried } from '../api/override-shapes.ts';
import { viewOf } from '../api/overrides.ts';
import type { InForceCount } from '../overrides/desk.ts';
import { DirectButton } from '../overrides/direct.ts';
import { newOverrideId } from '../../proto/wire/override-id.ts';
import { draftOf } from '../overrides/draft.ts';
import { Exit, Failed } from './client.ts';
import type { Context } from './context.ts';
import type { Act, Options } from './program.ts';
import { table } from './table.ts';

/** How long missing sidecars are asked for after the order has been answered. */
const FOLLOW_MS = 5_000;
const FOLLOW_EVERY_MS = 500;
const CONNECT_MS = 5_000;
/** Names of those that are missing, in a line for people. */
const MAX_NAMED = 12;
const USER = /^[a-z0-9][a-z0-9_-]{0,62}$/;

export function overrideCommands(program: Command, act: Act): void {
  const target = (command: Command): Command =>
    command
      .option('--capability <name>', 'a capability or a pattern: crm.order.query, crm.order.*, crm.*')
      .option('--provider <agent>', 'who serves: an agent id or a pattern such as team:crm')
      .option('--agent <agent>', 'either side: as the one that serves and as the one that calls')
      .option('--caller <agent>', 'who calls')
      .option('--everything', 'all calls of everybody; wants --yes')
      .requiredOption('--reason <text>', 'why: callers whose calls are refused will read it')
      .option('--for <duration>', 'how long it lasts, such as 30m; or forever', '1h')
      .option('--yes', 'it is meant: everything, or a name that nobody has')
      .option('--id <id>', 'its name; the same order given twice under one name is one override')
      .option('--dry-run', 'change nothing, show what it would hit');
  direct(target(program.command('stop-bleeding')))
    .description('the red button: block, on every sidecar, within a second')
    .option('--cut', 'cancel what is under way at once; else it ends in peace')
    .addHelpText(
      'after',
      `
Examples:
  reachctl stop-bleeding --capability crm.refund.apply --reason "refunds twice" --for 30m
  reachctl stop-bleeding --agent crm.order.a --reason "leaks data" --cut
  reachctl stop-bleeding --everything --reason "incident 17" --yes
With no control plane left:
  reachctl stop-bleeding --everything --reason "incident 17" --yes --nats nats://10.0.0.5:4222 --nkey ann.nk`,
    )
    .action(act((context, _args, options) => order(context, 'block', options)));
  const override = program
    .command('override')
    .description('emergency overrides: what is blocked, drained, degraded, rerouted')
    .helpCommand(false);
  direct(target(override.command('set')))
    .description('make one of any kind')
    .requiredOption('--action <action>', 'block, drain (nothing new), degrade (the declared fallback answers), reroute')
    .option('--to <target>', 'for reroute: capability, capability@range, @range or provider:team.role.id')
    .option('--cut', 'for block: cancel what is under way at once')
    .action(act((context, _args, options) => order(context, String(options['action']), options)));
  direct(override.command('list'))
    .description('those that last, and where they are in force')
    .action(act((context, _args, options) => list(context, options)));
  override
    .command('show <id>')
    .description('one, with everybody who lacks it')
    .action(
      act(async (context, [id]) => {
        const answer = await context.client.call({ path: `/v1/overrides/${encodeURIComponent(id as string)}` });
        context.show<OverrideShown>(answer, (one) => [overrideTable([one]), '', ...countLines(one, Number.POSITIVE_INFINITY)].join('\n'));
      }),
    );
  direct(override.command('lift <id>'))
    .description('end one: what waits because of it goes on')
    .option('--reason <text>', 'stands in the audit log')
    .action(act((context, [id], options) => lift(context, id as string, options)));
}

function direct(command: Command): Command {
  return command
    .option('--nats <url>', 'write into NATS directly: no control plane is needed')
    .option('--nkey <file>', 'with --nats: the seed of your user there')
    .option('--creds <file>', 'with --nats: credentials of your user there')
    .option('--as <name>', 'with --nats: who you are; else the name of the key file, else your user here')
    .addOption(new Option('--env <name>', 'with --nats: the environment, as in the settings').default(undefined, 'default'));
}

/** The address in NATS; null = by the control plane, which has an environment and knows its operators. */
function natsOf(options: Options): string | null {
  const nats = textOf(options, 'nats');
  const vain = ['nkey', 'creds', 'as', 'env'].find((name) => options[name] !== undefined);
  if (nats === null && vain !== undefined)
    throw new Failed(Exit.usage, [`--${vain} goes with --nats: without it the control plane is asked, which takes --server and --token`]);
  return nats;
}

async function order(context: Context, action: string, options: Options): Promise<void> {
  // Chosen here, so that an order whose answer was lost can be repeated and stays one.
  const body = { ...bodyOf(action, options), id: textOf(options, 'id') ?? newOverrideId(action, systemRandom) };
  const nats = natsOf(options);
  if (nats !== null) return orderDirectly(context, nats, body, options);
  const isAsked = options['everything'] === true && options['yes'] !== true && options['dryRun'] !== true;
  if (options['dryRun'] === true || isAsked) {
    const answer = await call(context, () =>
      context.client.call({ method: 'POST', path: '/v1/overrides', json: { ...body, dry_run: true } }),
    );
    context.show<OverrideTried>(answer, triedWords);
    if (isAsked) throw new Failed(Exit.refused, ['nothing was done: say --yes when everything is meant']);
    return;
  }
  const answer = (await call(context, () => context.client.call({ method: 'POST', path: '/v1/overrides', json: body }))) as OverrideOrdered;
  const last = await followed(context, answer, answer.id);
  context.show<OverrideOrdered>({ ...answer, ...last }, orderedWords);
}

/** Whoever did not have it at once may have it in a moment. */
async function followed(context: Context, first: InForceCount, id: string): Promise<InForceCount> {
  const { clock } = context.io;
  const until = clock.now() + FOLLOW_MS;
  let { in_force, of, missing } = first;
  while (missing.length > 0 && clock.now() < until) {
    if (!context.json) context.io.err(progressWords({ in_force, of, missing }));
    await new Promise<void>((done) => void clock.after(FOLLOW_EVERY_MS, done));
    const next = await context.client.call({ path: `/v1/overrides/${encodeURIComponent(id)}` }).catch(() => null);
    if (next === null) break;
    ({ in_force, of, missing } = next as OverrideShown);
  }
  return { in_force, of, missing };
}

async function list(context: Context, options: Options): Promise<void> {
  const nats = natsOf(options);
  if (nats === null) {
    const answer = await call(context, () => context.client.call({ path: '/v1/overrides' }));
    context.show<OverridesAnswer>(answer, listWords);
    return;
  }
  await withButton(context, nats, options, async (button) => {
    const read = await button.list();
    if (typeof read === 'string') throw new Failed(Exit.refused, [read]);
    const { state, seq } = read;
    const count = await button.counted({ seq, epoch: state.epoch }, seq === 0 ? 0 : FOLLOW_EVERY_MS, () => {});
    const overrides = state.overrides.map((entry) => ({ ...viewOf(entry), ...count }));
    context.show<OverridesAnswer>({ epoch: state.epoch, seq, revision: state.revision, ...count, overrides }, listWords);
  });
}

async function lift(context: Context, id: string, options: Options): Promise<void> {
  const reason = textOf(options, 'reason') ?? '';
  const nats = natsOf(options);
  if (nats === null) {
    const path = `/v1/overrides/${encodeURIComponent(id)}`;
    const query = { reason: reason === '' ? null : reason };
    const answer = await call(context, () => context.client.call({ method: 'DELETE', path, query }));
    context.show<OverrideLifted>(answer, (one) => [`lifted ${one.id}`, ...countLines(one)].join('\n'));
    return;
  }
  await withButton(context, nats, options, async (button) => {
    const lifted = await button.lift(id, reason);
    if ('problem' in lifted) throw new Failed(Exit.refused, [lifted.problem]);
    const count = await directCount(context, button, lifted.seq);
    tellUnaudited(context, lifted.unaudited);
    context.show<OverrideLifted>({ id, seq: lifted.seq, lifted: true, ...count }, () => [`lifted ${id}`, ...countLines(count)].join('\n'));
  });
}

// ---- without a control plane

async function orderDirectly(context: Context, url: string, body: Readonly<Record<string, unknown>>, options: Options): Promise<void> {
  const draft = draftOf(
    { ...body, ...(options['dryRun'] === true ? { dry_run: true } : null) },
    { author: nameOf(context, options), nowMs: context.io.clock.wallMs(), random: systemRandom },
  );
  if (typeof draft === 'string')
    throw new Failed(Exit.usage, [options['everything'] === true && options['yes'] !== true ? 'everything wants --yes' : draft]);
  if (draft.isDry) throw new Failed(Exit.usage, ['--dry-run asks the control plane: NATS alone does not know what an override would hit']);
  await withButton(context, url, options, async (button) => {
    const ordered = await button.add(draft.entry);
    if ('problem' in ordered) throw new Failed(Exit.refused, [ordered.problem]);
    const count = await directCount(context, button, ordered.seq);
    tellUnaudited(context, ordered.unaudited);
    const answer: OverrideOrdered = {
      id: ordered.entry.id,
      seq: ordered.seq,
      ...count,
      override: viewOf(ordered.entry),
      repeated: ordered.isRepeated,
      warnings: [
        ...(button.knowsFleet ? [] : ['the registry cannot be read: only sidecars that answered are counted']),
        ...(button.clockBehindMs === 0
          ? []
          : [`the clock of this machine is wrong by ${Math.round(button.clockBehindMs / 1_000)} s: the override ends by that of NATS`]),
      ],
    };
    context.show<OverrideOrdered>(answer, orderedWords);
  });
}

async function directCount(context: Context, button: DirectButton, seq: number): Promise<InForceCount> {
  const read = await button.list();
  if (typeof read === 'string') throw new Failed(Exit.refused, [`written, but it cannot be read where it is in force: ${read}`]);
  await button.readFleet();
  let told = '';
  // Without the registry nobody knows when all have answered: a second is long.
  const count = await button.counted({ seq, epoch: read.state.epoch }, button.knowsFleet ? FOLLOW_MS : 2 * FOLLOW_EVERY_MS, (now) => {
    const words = progressWords(now);
    if (words !== told && !context.json && now.missing.length > 0) context.io.err(words);
    told = words;
  });
  return count;
}

async function withButton(context: Context, url: string, options: Options, act: (button: DirectButton) => Promise<void>): Promise<void> {
  const button = await DirectButton.open({
    servers: url.split(',').map((each) => each.trim()),
    env: textOf(options, 'env') ?? 'default',
    name: nameOf(context, options),
    credential: credentialOf(options),
    clock: context.io.clock,
    random: systemRandom,
    connectMs: CONNECT_MS,
  });
  if (typeof button === 'string') throw new Failed(Exit.unreachable, [button]);
  try {
    await act(button);
  } finally {
    await button.close();
  }
}

function credentialOf(options: Options): BusCredential | null {
  const nkey = textOf(options, 'nkey');
  const creds = textOf(options, 'creds');
  if (nkey !== null) return { nkeySeed: fileText(nkey).trim() };
  return creds === null ? null : { creds: fileText(creds) };
}

function fileText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new Failed(Exit.usage, [`${file}: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`]);
  }
}

/** The operator's name: where permissions are generated it is that of his user on NATS, and of its key file. */
function nameOf({ io }: Context, options: Options): string {
  const said = textOf(options, 'as');
  if (said !== null && !USER.test(said))
    throw new Failed(Exit.usage, [`--as ${JSON.stringify(said.slice(0, 80))} is not a name: a-z, 0-9, _ and -`]);
  const file = textOf(options, 'nkey');
  const candidates = [said, file === null ? null : basename(file, extname(file)), io.env['USER'] ?? null];
  return candidates.find((each) => each !== null && USER.test(each)) ?? 'reachctl';
}

// ---- words

function bodyOf(action: string, options: Options): Readonly<Record<string, unknown>> {
  const target: Record<string, string | true> = {};
  for (const name of ['capability', 'provider', 'agent', 'caller'] as const) {
    const value = textOf(options, name);
    if (value !== null) target[name] = value;
  }
  if (options['everything'] === true) target['all'] = true;
  if (Object.keys(target).length === 0)
    throw new Failed(Exit.usage, ['say what: --capability, --provider, --agent, --caller, or --everything']);
  const lasts = String(options['for']);
  const duration = lasts === 'forever' ? 0 : parseDuration(lasts, Number.MAX_SAFE_INTEGER);
  if (typeof duration === 'string') throw new Failed(Exit.usage, [`--for: ${duration}, or the word forever`]);
  return {
    action,
    target,
    ...(typeof options['to'] === 'string' ? { to: options['to'] } : null),
    cut: options['cut'] === true,
    reason: String(options['reason']),
    for: lasts,
    confirm: options['yes'] === true,
  };
}

function textOf(options: Options, name: string): string | null {
  return typeof options[name] === 'string' ? options[name] : null;
}

/** An operator whose control plane is gone is told what is left. */
async function call<T>(context: Context, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof Failed) || error.exit !== Exit.unreachable) throw error;
    throw new Failed(error.exit, [
      ...error.lines,
      `another replica does as well (--server, now ${context.server}); with none left write it directly: --nats nats://HOST:4222 [--nkey FILE]`,
    ]);
  }
}

function tellUnaudited({ io }: Context, why: string | null): void {
  if (why !== null) io.err(`reachctl: done, and not in the audit log: ${printable(why, 300)}`);
}

function progressWords(count: InForceCount): string {
  return `in force on ${count.in_force} of ${count.of}${count.missing.length === 0 ? '' : `, missing: ${named(count, MAX_NAMED)}`}`;
}

function named({ missing }: InForceCount, most: number): string {
  const names = missing.slice(0, most).map(({ sidecar }) => sidecar);
  return `${names.join(', ')}${missing.length > most ? ` and ${missing.length - most} more` : ''}`;
}

function countLines(count: InForceCount, most = MAX_NAMED): string[] {
  return [progressWords(count), ...count.missing.slice(0, most).map(({ sidecar, why }) => `  ${sidecar}: ${printable(why, 300)}`)];
}

function orderedWords(answer: OverrideOrdered): string {
  const { override, repeated } = answer;
  return [
    `${repeated ? 'stands already' : 'set'}: ${answer.id} ${override.action}s ${targetWords(override.target)}${override.to === null ? '' : ` to ${override.to}`}${override.cut ? ', cutting what is under way' : ''}, until ${override.expires_at ?? 'it is lifted'}`,
    ...countLines(answer),
    ...answer.warnings.map((each) => `note: ${printable(each, 300)}`),
    `lift it with: reachctl override lift ${answer.id}`,
  ].join('\n');
}

function triedWords({ override, would_hit: hit, problem, warnings }: OverrideTried): string {
  const some = (what: string, names: readonly string[]): string =>
    `  ${names.length} ${what}${names.length === 0 ? '' : `: ${names.slice(0, MAX_NAMED).join(', ')}${names.length > MAX_NAMED ? ', …' : ''}`}`;
  return [
    `${override.action} ${targetWords(override.target)} would hit, on ${hit.sidecars} sidecars:`,
    some('capabilities', hit.capabilities),
    some('providers', hit.providers),
    some('agents that call', hit.callers),
    `  ${hit.in_flight} calls under way at these providers`,
    ...(problem === null ? [] : [`it would be refused: ${printable(problem, 300)}`]),
    ...warnings.filter((each) => each !== problem).map((each) => `note: ${printable(each, 300)}`),
  ].join('\n');
}

function listWords(answer: OverridesAnswer): string {
  if (answer.overrides.length === 0) return ['no override lasts', ...countLines(answer)].join('\n');
  return [overrideTable(answer.overrides), '', ...countLines(answer)].join('\n');
}

function overrideTable(overrides: readonly OverrideShown[]): string {
  return table(
    ['ID', 'ACTION', 'WHAT', 'TO', 'UNTIL', 'BY', 'IN FORCE', 'REASON'],
    overrides.map((one) => [
      one.id,
      `${one.action}${one.cut ? ' (cut)' : ''}`,
      targetWords(one.target),
      one.to,
      one.expires_at ?? 'lifted',
      one.author,
      `${one.in_force}/${one.of}`,
      one.reason,
    ]),
  );
}

function targetWords(target: OverrideEntry['target']): string {
  if (target.all === true) return 'everything';
  const parts: string[] = [];
  for (const name of ['capability', 'provider', 'agent', 'caller'] as const) {
    const value = target[name];
    if (value !== undefined) parts.push(`${name} ${value}`);
  }
  return parts.join(', ');
}
