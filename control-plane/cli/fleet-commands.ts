/** `fleet`, `watch`, `confirm`, `leader`, `export`, `import`: how the whole is doing, and its memory. */
import { writeFileSync } from 'node:fs';
import type { Command } from 'commander';
import { printable } from '../../base/log.ts';
import type { FleetAnswer, LeaderAnswer } from '../api/shapes.ts';
import { Exit, Failed } from './client.ts';
import type { Context } from './context.ts';
import { rolloutWords } from './policy-commands.ts';
import type { Act, Options } from './program.ts';
import { ago, table, when } from './table.ts';

export function fleetCommands(program: Command, act: Act): void {
  showingFleet(program.command('fleet'), act, 'what every sidecar has applied, who is behind, who refuses what');
  const sidecars = program.command('sidecars').description('the sidecars of the fleet').helpCommand(false);
  showingFleet(sidecars.command('list'), act, 'the same as fleet');
  program
    .command('watch')
    .description('changes as they happen, until interrupted')
    .option('--count <n>', 'end after so many')
    .action(act(watch));
  program
    .command('confirm')
    .description('say that what is held back (a sudden loss of providers) is true')
    .option('--reason <text>', 'stands in the audit log')
    .action(
      act(async (context, _args, options) => {
        const json = typeof options['reason'] === 'string' ? { reason: options['reason'] } : {};
        const answer = await context.client.call({ method: 'POST', path: '/v1/confirm', json });
        context.show<{ confirmed: readonly { id: string; reason: string }[] }>(answer, ({ confirmed }) =>
          confirmed.map(({ id, reason }) => `confirmed ${id}: ${printable(reason)}`).join('\n'),
        );
      }),
    );
  program
    .command('leader')
    .description('which replica of the control plane leads')
    .action(
      act(async (context) => {
        const answer = await context.client.call({ path: '/v1/leader' });
        context.show<LeaderAnswer>(answer, ({ leader, replica, status, nats, epoch, last_seq: seq }) =>
          [
            leader === null ? 'no replica leads at present' : `${leader.holder} leads (term ${leader.term}, ${leader.url})`,
            `asked: ${replica}, ${status}, NATS ${nats}, sequence ${seq}, epoch ${epoch === '' ? 'unknown' : epoch}`,
          ].join('\n'),
        );
      }),
    );
  program
    .command('export')
    .description("the registry and the operators' state as one document, for the day the stream is lost")
    .option('--out <file>', 'write it there instead of to standard output')
    .action(
      act(async (context, _args, options) => {
        const text = await context.client.text({ path: '/v1/export' });
        if (typeof options['out'] !== 'string') return context.io.out(text);
        writeFileSync(options['out'], `${text}\n`, { mode: 0o600 });
        context.io.err(`written to ${options['out']}`);
      }),
    );
  program
    .command('import <file>')
    .description("take an export in: sidecars that are not registered, and the operators' state")
    .action(
      act(async (context, [file]) => {
        const text = await context.read(file as string);
        let json: unknown;
        try {
          json = JSON.parse(text) as unknown;
        } catch {
          throw new Failed(Exit.refused, [`${file as string}: this is not JSON`]);
        }
        const answer = await context.client.call({ method: 'POST', path: '/v1/import', json });
        context.show<{ sidecars: number; version: number; seq: number }>(
          answer,
          ({ sidecars, version, seq }) => `${sidecars} sidecars taken in; version ${version} of the policies is in force; sequence ${seq}`,
        );
      }),
    );
}

function showingFleet(command: Command, act: Act, description: string): void {
  command
    .description(description)
    .option('--check', 'end with 1 unless everybody is current, has every override, and nothing is refused or held back')
    .action(act(fleet));
}

async function fleet(context: Context, _args: readonly string[], options: Options): Promise<void> {
  const answer = (await context.client.call({ path: '/v1/sidecars' })) as FleetAnswer;
  context.show<FleetAnswer>(answer, fleetWords);
  if (options['check'] !== true) return;
  const { total, current, refusing } = answer.summary;
  const held = answer.held?.length ?? 0;
  const lacking = answer.sidecars.filter((one) => one.lacks_overrides !== null).length;
  if (current === total && refusing === 0 && held === 0 && lacking === 0) return;
  throw new Failed(Exit.refused, [
    `${current} of ${total} sidecars are current, ${refusing} refuse something, ${held} losses are held back, ${lacking} lack overrides`,
  ]);
}

function fleetWords(view: FleetAnswer): string {
  const rows = table(
    ['SIDECAR', 'STANDING', 'APPLIED', 'BEHIND', 'REPORT', 'VERSION', 'POLICIES', 'CAPABILITIES', 'PROVIDERS', 'NOTE'],
    view.sidecars.map((one) => [
      one.sidecar,
      one.standing,
      one.applied_seq === null ? null : `${one.applied_seq}/${one.wanted_seq}`,
      one.behind,
      one.last_report_ago_ms === null ? 'never' : `${ago(one.last_report_ago_ms)} ago`,
      one.version,
      one.policies === null ? null : `${one.policies.version}${one.policies.staged ? ' (staged)' : ''}`,
      one.capabilities,
      one.providers,
      one.lacks_overrides !== null
        ? `LACKS OVERRIDES: ${one.lacks_overrides}`
        : one.stale_because !== ''
          ? one.stale_because
          : one.refused.length > 0
            ? `refuses ${one.refused.length}`
            : null,
    ]),
  );
  const { summary } = view;
  const lines = [
    rows,
    '',
    `${summary.current} of ${summary.total} current at sequence ${view.last_seq}; behind ${summary.behind}, stale ${summary.stale}, missing ${summary.missing}, refusing ${summary.refusing}`,
  ];
  const lacking = view.sidecars.filter((one) => one.lacks_overrides !== null).map((one) => one.sidecar);
  if (lacking.length > 0)
    lines.push(
      `overrides: in force on ${summary.total - lacking.length} of ${summary.total}, missing: ${lacking.slice(0, 20).join(', ')}${lacking.length > 20 ? ', …' : ''}`,
    );
  lines.push(`NATS ${printable(view.nats.version)}, flushes what it acknowledges: ${printable(view.nats.flush)}`);
  for (const one of view.sidecars)
    for (const { tail, seq, why } of one.refused) lines.push(`${one.sidecar} refuses ${tail} (sequence ${seq}): ${printable(why)}`);
  for (const { id, reason, for_ms: forMs } of view.held ?? [])
    lines.push(`HELD BACK (${id}${forMs === null ? '' : `, for ${ago(forMs)}`}): ${printable(reason)}; confirm it with: reachctl confirm`);
  if (view.rollout !== null) lines.push(rolloutWords(view.rollout));
  return lines.join('\n');
}

interface Happened {
  readonly kind?: string;
  readonly agent?: string;
  readonly sidecar?: string;
  readonly words?: string;
  readonly tail?: string;
  readonly seq?: number;
  readonly at_ms?: number;
}

async function watch(context: Context, _args: readonly string[], options: Options): Promise<void> {
  const most = typeof options['count'] === 'string' ? Number(options['count']) : Number.POSITIVE_INFINITY;
  if (!(most >= 1)) throw new Failed(Exit.usage, ['--count must be a whole number of 1 or more']);
  let seen = 0;
  for (let failures = 0; seen < most; ) {
    try {
      await context.client.events({ path: '/v1/watch' }, (name, data) => {
        failures = 0;
        if (name === 'hello') return true;
        context.io.out(context.json ? JSON.stringify({ event: name, ...(data as object) }) : happenedWords(name, data as Happened));
        return ++seen < most;
      });
    } catch (error) {
      if (!(error instanceof Failed) || error.exit !== Exit.unreachable || ++failures > WATCH_RETRIES) throw error;
    }
    if (seen >= most) return;
    // Another replica leads now, or will in a moment.
    context.io.err('reachctl: the stream has ended; looking for the leader');
    await new Promise<void>((done) => void context.io.clock.after(WATCH_PAUSE_MS, done));
  }
}

const WATCH_RETRIES = 15;
const WATCH_PAUSE_MS = 1_000;

function happenedWords(name: string, one: Happened): string {
  const time = when(one.at_ms).slice(11, 19);
  if (name === 'stored') return `${time}  stored      ${one.tail ?? ''} at sequence ${one.seq ?? 0}`;
  return `${time}  ${(one.kind ?? '').padEnd(10)}  ${printable(one.words ?? '')}`;
}
