/**
 * The other ways in and out, measured after the plain path and beside it in no way: a sidecar of its own that is started
 * when all plain figures are taken. Decides what it is told, where the load goes, and what is said in the last line. The
 * ways in (`json_rpc`, `grpc`) reach the HTTP agent; the ways out (`…_out`) are called in plain HTTP.
 */
import { stringify } from 'yaml';
import { registerTransports } from '../../sidecar/transports/index.ts';
import { repoFile } from '../support/paths.ts';
import { type Latency, median, type Pass, perCall } from './figures.ts';
import { CALLER_TOKEN, contract, DIRECT, provider } from './scenario.ts';
import type { Target } from './connection.ts';

export type WayName = 'json_rpc' | 'grpc' | 'json_rpc_out' | 'grpc_out';

const JSON_RPC_OUT = 'crm.order.rpc';
const GRPC_OUT = 'crm.order.proto';

/** Those that this build has an adapter for. */
export function waysHere(): readonly WayName[] {
  return 'grpc' in registerTransports(null) ? ['json_rpc', 'grpc', 'json_rpc_out', 'grpc_out'] : ['json_rpc', 'grpc', 'json_rpc_out'];
}

/** @param grpcAgentPort null = there is no such agent. */
export function waysSettings(agentUrl: string, grpcAgentPort: number | null): string {
  const contracts = [contract(DIRECT), contract(JSON_RPC_OUT)];
  const providers = [
    provider('crm.order.a1', DIRECT, { type: 'http', address: agentUrl }, null),
    provider('crm.order.a2', JSON_RPC_OUT, { type: 'jsonrpc', address: `${agentUrl}/rpc` }, null),
  ];
  if (grpcAgentPort !== null) {
    contracts.push(contract(GRPC_OUT));
    const endpoint = {
      type: 'grpc',
      address: `grpc://127.0.0.1:${grpcAgentPort}`,
      methods: { [GRPC_OUT]: 'bench.v1.Orders/Explain' },
      descriptor: repoFile('test/bench/orders.proto'),
      field_names: 'original',
    };
    providers.push(provider('crm.order.a3', GRPC_OUT, endpoint, null));
  }
  const sidecar = {
    name: 'bench-ways',
    listen: '127.0.0.1:0',
    grpc: { listen: '127.0.0.1:0' },
    locality: { region: 'eu', zone: 'a' },
    callers: [{ agent: 'crm.planner.a1', token: CALLER_TOKEN }],
  };
  return stringify({ sidecar, contracts, providers }, { aliasDuplicateObjects: false });
}

export function wayTarget(name: WayName, httpPort: number, grpcPort: number): Target {
  const headers = { authorization: `Bearer ${CALLER_TOKEN}` };
  const http = (capability: string): Target => ({
    name,
    port: httpPort,
    path: `/v1/invoke/${capability}@%5E2.0`,
    headers,
    enveloped: true,
  });
  switch (name) {
    case 'json_rpc':
      return { name, port: httpPort, path: '/rpc', headers, enveloped: true, speaks: 'json_rpc', asks: `${DIRECT}@^2.0` };
    case 'grpc':
      return { name, port: grpcPort, path: '', headers, enveloped: true, speaks: 'grpc', asks: `${DIRECT}@^2.0` };
    case 'json_rpc_out':
      return http(JSON_RPC_OUT);
    case 'grpc_out':
      return http(GRPC_OUT);
  }
}

export type WayPasses = Readonly<Partial<Record<WayName, readonly Pass[]>>>;
/** One window: `direct` and the ways. */
export type WayWindow = Readonly<Partial<Record<WayName | 'direct', Latency>>>;

/** `<way>_cpu_us` and `<way>_added_p50_ms` of each way that was measured. */
export function wayFigures(passes: WayPasses, windows: readonly WayWindow[]): Readonly<Record<string, number>> {
  const figures: Record<string, number> = {};
  for (const [way, of] of Object.entries(passes)) figures[`${way}_cpu_us`] = rounded(median(of.map(perCall)), 1);
  for (const way of Object.keys(passes) as WayName[]) {
    const added = windows.map((window) => (window[way]?.p50Ms ?? Number.NaN) - (window.direct?.p50Ms ?? Number.NaN));
    figures[`${way}_added_p50_ms`] = rounded(median(added), 3);
  }
  return figures;
}

/** For people. */
export function wayTable(passes: WayPasses, windows: readonly WayWindow[]): string {
  const figures = wayFigures(passes, windows);
  const lines = ['way            calls/s    CPU us/call   added p50 ms'];
  for (const [way, of] of Object.entries(passes)) {
    const perSec = median(of.map((pass) => (pass.calls / pass.elapsedMs) * 1_000));
    const [cpu, added] = [figures[`${way}_cpu_us`], figures[`${way}_added_p50_ms`]];
    lines.push(`${way.padEnd(14)}${perSec.toFixed(0).padStart(8)}${String(cpu).padStart(15)}${String(added).padStart(15)}`);
  }
  return lines.join('\n');
}

function rounded(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
