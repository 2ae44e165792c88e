/** `providers`, `capabilities`, `canary`, `explain`: what is registered, and what operators do to it. */
import type { Command } from 'commander';
import type { CapabilitiesAnswer, CapabilityAnswer, CanaryChange, ProviderChange, ProvidersAnswer } from '../api/shapes.ts';
import { Exit, Failed } from './client.ts';
import { shareOf } from './context.ts';
import type { Act } from './program.ts';
import { ago, percent, table, when } from './table.ts';

export function registryCommands(program: Command, act: Act): void {
  const providers = program.command('providers').description('who serves, and in what condition').helpCommand(false);
  providers
    .command('list')
    .description('every provider, with its last activity')
    .option('--capability <name>', 'only those that offer this')
    .option('--sidecar <name>', 'only those of this sidecar')
    .option('--state <state>', 'online, draining, offline or overdue')
    .action(
      act(async (context, _args, options) => {
        const given = (name: string): string | null => (typeof options[name] === 'string' ? options[name] : null);
        const query = { capability: given('capability'), sidecar: given('sidecar'), state: given('state') };
        const answer = await context.client.call({ path: '/v1/providers', query });
        context.show<ProvidersAnswer>(answer, (view) => providerTable(view.providers));
      }),
    );
  for (const [verb, does] of [
    ['drain', 'give it no new calls; those under way end in peace'],
    ['restore', 'end a drain and an operator’s weight'],
  ] as const) {
    providers
      .command(`${verb} <agent-id>`)
      .description(does)
      .option('--reason <text>', 'stands in the audit log')
      .action(
        act(async (context, [id], options) => {
          const path = `/v1/providers/${encodeURIComponent(id as string)}/${verb}`;
          const answer = await context.client.call({ method: 'POST', path, json: reasonOf(options) });
          context.show<ProviderChange>(answer, changeWords);
        }),
      );
  }
  providers
    .command('weight <agent-id> <weight>')
    .description('its share beside the others; 0 takes no traffic, `record` gives back what its record says')
    .option('--reason <text>', 'stands in the audit log')
    .action(
      act(async (context, [id, weight], options) => {
        const value = weight === 'record' ? null : Number(weight);
        if (value !== null && (!Number.isFinite(value) || value < 0))
          throw new Failed(Exit.usage, [`the weight must be a number of 0 or more, or the word record, not ${JSON.stringify(weight)}`]);
        const path = `/v1/providers/${encodeURIComponent(id as string)}/weight`;
        const answer = await context.client.call({ method: 'PUT', path, json: { weight: value, ...reasonOf(options) } });
        context.show<ProviderChange>(answer, changeWords);
      }),
    );

  const capabilities = program.command('capabilities').description('what can be asked for').helpCommand(false);
  capabilities
    .command('list')
    .description('every capability with its versions and providers')
    .action(
      act(async (context) => {
        const answer = await context.client.call({ path: '/v1/capabilities' });
        context.show<CapabilitiesAnswer>(answer, (view) => capabilityTable(view.capabilities));
      }),
    );
  capabilities
    .command('show <name>')
    .description('one capability: contracts, policies, providers, roll-out')
    .action(
      act(async (context, [name]) => {
        const answer = await context.client.call({ path: `/v1/capabilities/${encodeURIComponent(name as string)}` });
        context.show<CapabilityAnswer>(answer, capabilityWords);
      }),
    );

  program
    .command('canary <capability> [versions...]')
    .description('split the traffic by version: canary crm.order.query 2.1.0=5%')
    .option('--clear', 'no split any more: what the policies say')
    .option('--reason <text>', 'stands in the audit log')
    .addHelpText('after', '\nExample: reachctl canary crm.order.query 2.1.0=5% 2.0.0=95%')
    .action(
      act(async (context, [name, ...pairs], options) => {
        if (options['clear'] !== true && pairs.length === 0)
          throw new Failed(Exit.usage, ['canary needs VERSION=SHARE, such as 2.1.0=5%, or --clear']);
        if (options['clear'] === true && pairs.length > 0)
          throw new Failed(Exit.usage, ['--clear ends the split, and shares make one: leave one of them out']);
        const shares = options['clear'] === true ? null : sharesOf(pairs);
        const path = `/v1/capabilities/${encodeURIComponent(name as string)}/canary`;
        const answer = await context.client.call({ method: 'POST', path, json: { shares, ...reasonOf(options) } });
        context.show<CanaryChange>(answer, canaryWords);
      }),
    );

  program
    .command('explain <target>')
    .description('ask a live sidecar who would serve, and why everybody else was left out; nothing is sent')
    .requiredOption('--sidecar <name>', 'the sidecar that is asked')
    .option('--as <agent-id>', 'the agent that would call')
    .option('--header <name:value...>', 'headers the call would carry, such as reach-affinity:c1')
    .action(
      act(async (context, [target], options) => {
        const headers: Record<string, string> = {};
        for (const each of (options['header'] as string[] | undefined) ?? []) {
          const colon = each.indexOf(':');
          if (colon < 1) throw new Failed(Exit.usage, [`--header takes name:value, not ${JSON.stringify(each.slice(0, 80))}`]);
          headers[each.slice(0, colon).trim().toLowerCase()] = each.slice(colon + 1).trim();
        }
        const query = {
          sidecar: options['sidecar'] as string,
          target: target as string,
          as: (options['as'] as string | undefined) ?? null,
          headers: Object.keys(headers).length === 0 ? null : JSON.stringify(headers),
        };
        const answer = await context.client.call({ path: '/v1/explain', query });
        context.show<Explained>(answer, explainWords);
      }),
    );
}

function reasonOf(options: Readonly<Record<string, unknown>>): Record<string, string> {
  return typeof options['reason'] === 'string' ? { reason: options['reason'] } : {};
}

function sharesOf(pairs: readonly string[]): Record<string, string> {
  const shares: Record<string, string> = {};
  for (const pair of pairs) {
    const at = pair.indexOf('=');
    if (at < 1) throw new Failed(Exit.usage, [`write VERSION=SHARE, such as 2.1.0=5%, not ${JSON.stringify(pair.slice(0, 80))}`]);
    shares[pair.slice(0, at)] = shareOf(pair.slice(at + 1), `the share of ${pair.slice(0, at)}`);
  }
  return shares;
}

const inForce = (seq: number): string => (seq > 0 ? `in force at sequence ${seq}` : 'nothing changed');

function changeWords({ agent, operator, seq }: ProviderChange): string {
  const drain = operator?.drain ?? null;
  const weight = operator?.weight ?? null;
  const words = [
    drain === true ? 'draining' : 'not drained by an operator',
    weight === null ? 'weight as in its record' : `weight ${weight}`,
  ];
  return `${agent}: ${words.join(', ')}; ${inForce(seq)}`;
}

function canaryWords({ capability, shares, seq }: CanaryChange): string {
  const words = shares === null ? 'no split of an operator' : sharesText(shares);
  return `${capability}: ${words}; ${inForce(seq)}`;
}

const sharesText = (shares: Readonly<Record<string, number>>): string =>
  Object.entries(shares)
    .map(([version, share]) => `${version} ${percent(share)}`)
    .join(', ');

function providerTable(providers: ProvidersAnswer['providers']): string {
  return table(
    ['AGENT', 'STATUS', 'SIDECAR', 'OFFERS', 'WEIGHT', 'TIER', 'ACTIVE', 'IN FLIGHT', 'NOTE'],
    providers.map((one) => [
      one.agent,
      one.drain ? `${one.status}, draining` : one.status,
      one.sidecar,
      one.offers.length <= 2 ? one.offers.join(' ') : `${one.offers[0]} and ${one.offers.length - 1} more`,
      one.weight,
      one.tier,
      one.last_activity_ms === null ? null : `${ago(one.last_activity_ms)} ago`,
      one.in_flight,
      noteOn(one),
    ]),
  );
}

const WHY: Readonly<Record<string, string>> = { lease: 'no sign of life', left: 'said goodbye', probe: 'its health check fails' };

function noteOn(one: ProvidersAnswer['providers'][number]): string | null {
  if (one.why !== null) return `${WHY[one.why] ?? one.why} since ${when(one.offline_since_ms)}`;
  if (one.probe !== null && one.probe.failures > 0) return `its health check failed ${one.probe.failures} times`;
  if (one.operator !== null) return 'set by an operator';
  return null;
}

function capabilityTable(capabilities: CapabilitiesAnswer['capabilities']): string {
  return table(
    ['CAPABILITY', 'VERSIONS', 'DEFAULT', 'CANARY', 'ONLINE', 'PROVIDERS', 'ALIASES'],
    capabilities.map((one) => [
      one.capability,
      one.versions.map(({ version }) => version).join(' '),
      one.default_range,
      one.canary === null ? null : sharesText(one.canary),
      one.online,
      one.providers,
      one.aliases.join(' '),
    ]),
  );
}

function capabilityWords(one: CapabilityAnswer): string {
  const versions = table(
    ['VERSION', 'EXECUTION', 'STREAMS', 'ONLINE', 'PROVIDERS', 'FROM', 'WHO MAY CALL'],
    one.versions.map((each) => [
      each.version,
      each.execution,
      each.streaming,
      each.online,
      each.providers,
      each.source,
      each.acl.join(' '),
    ]),
  );
  const head = [
    one.capability,
    one.default_range === null ? '' : `default range ${one.default_range}`,
    one.canary === null ? '' : `canary ${sharesText(one.canary)}`,
    one.policies.length === 0 ? '' : `policies ${one.policies.join(' ')}`,
    one.seq === 0 ? 'not pushed yet' : `sequence ${one.seq}`,
  ];
  return [head.filter((part) => part !== '').join(' · '), '', versions, '', providerTable(one.provider_list)].join('\n');
}

interface Explained {
  readonly asked?: string;
  readonly caller?: string | null;
  readonly would_serve?: { readonly provider: string; readonly version: string } | null;
  readonly refusal?: { readonly code: number; readonly name: string; readonly detail: string } | null;
  readonly decision?: readonly { readonly stage: string; readonly words: string }[];
  readonly candidates?: readonly {
    readonly agent_id: string;
    readonly version: string;
    readonly verdict: string;
    readonly because: string;
  }[];
  readonly hints?: readonly string[];
}

function explainWords(view: Explained): string {
  const { would_serve: serves, refusal } = view;
  const verdict =
    serves != null
      ? `${serves.provider} would serve version ${serves.version}`
      : `refused: ${refusal?.code ?? '?'} ${refusal?.name ?? ''}: ${refusal?.detail ?? ''}`;
  const steps = table(
    ['STAGE', 'DECISION'],
    (view.decision ?? []).map(({ stage, words }) => [stage, words]),
  );
  const others = (view.candidates ?? []).map(({ agent_id: agent, version, verdict: decided, because }) => [
    agent,
    version,
    decided === 'serves' ? 'serves' : 'left out',
    because,
  ]);
  return [
    verdict,
    ...(view.hints ?? []),
    '',
    steps,
    ...(others.length > 0 ? ['', table(['CANDIDATE', 'VERSION', 'VERDICT', 'BECAUSE'], others)] : []),
  ].join('\n');
}
