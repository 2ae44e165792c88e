/**
 * Which folder may import which. Imports go down only; folders of one rank never see one another (a stage that needs
 * another stage is a stage too many). The linter knows cycles but no ranks, and a rule per folder written as path patterns
 * passes whatever it does not match; here a file that belongs to no layer is itself an error.
 */

interface Layer {
  /** Folder (ending in `/`) or file, from the top of the tree. */
  readonly path: string;
  readonly rank: number;
}

/** Lowest first. A higher rank may import every lower one of its own side, and `base` and `proto`. */
const SIDECAR: readonly (readonly string[])[] = [
  [
    'sidecar/messages-config.ts',
    'sidecar/claims-config.ts',
    'sidecar/identity-config.ts',
    'sidecar/shutdown-config.ts',
    'sidecar/listen-config.ts',
    'sidecar/traces-config.ts',
    'sidecar/recording-config.ts',
  ],
  ['sidecar/config.ts'],
  ['sidecar/health/', 'sidecar/secrets.ts', 'sidecar/version.ts'],
  ['sidecar/table/'],
  ['sidecar/call/'],
  ['sidecar/ledger/', 'sidecar/transports/'],
  [
    'sidecar/identify/',
    'sidecar/name/',
    'sidecar/acl/',
    'sidecar/loops/',
    'sidecar/overrides/',
    'sidecar/limits/',
    'sidecar/quotas/',
    'sidecar/deadline/',
    'sidecar/resolve/',
    'sidecar/contract/',
    'sidecar/choose/',
    'sidecar/claim/',
    'sidecar/slots/',
    'sidecar/attempt/',
    'sidecar/retry/',
    'sidecar/fallback/',
  ],
  ['sidecar/engine.ts'],
  [
    'sidecar/observe/',
    'sidecar/record/',
    'sidecar/send/',
    'sidecar/inbox/',
    'sidecar/deliver/',
    'sidecar/settle.ts',
    'sidecar/assemble.ts',
  ],
  ['sidecar/pipeline.ts', 'sidecar/explain.ts'],
  ['sidecar/accept/', 'sidecar/join.ts'],
  ['sidecar/steering.ts'],
  ['sidecar/stop.ts'],
  ['sidecar/sidecar.ts', 'sidecar/embed/'],
  ['sidecar/embedded.ts'],
  ['sidecar/library.ts', 'sidecar/lab/', 'sidecar/replay/'],
  ['sidecar/cli.ts'],
  ['sidecar/main.ts'],
];

const FIRST_RANK = 10;

const LAYERS: readonly Layer[] = [
  { path: 'base/', rank: 0 },
  { path: 'proto/', rank: 1 },
  ...SIDECAR.flatMap((paths, depth) => paths.map((path) => ({ path, rank: FIRST_RANK + depth }))),
  // Runs in browsers: it asks the API, and nothing of the program that serves it is in it.
  { path: 'control-plane/console/', rank: FIRST_RANK - 1 },
  { path: 'control-plane/', rank: FIRST_RANK },
  { path: 'sdk/', rank: FIRST_RANK },
  { path: 'docs/', rank: 90 },
  { path: 'deploy/', rank: 90 },
  { path: 'test/', rank: 99 },
];

/** Sides that never import each other, whatever their ranks: they are separate programs. */
const SIDES: readonly string[] = ['sidecar/', 'control-plane/', 'sdk/'];

/** Null when `from` (a file that has a layer) may import `to` (both named from the top of the tree, as sources), else the reason. */
export function layerProblem(from: string, to: string): string | null {
  const upper = layerOf(from);
  const lower = layerOf(to);
  if (upper === null) return null; // said once a file, not once an import
  if (lower === null) return `imports ${to}, which belongs to no layer`;
  if (upper.path === lower.path) return null;
  const sides = [sideOf(from), sideOf(to)];
  if (sides[0] !== null && sides[1] !== null && sides[0] !== sides[1]) return `imports ${to}: ${sides.join(' and ')} are separate programs`;
  if (upper.rank === lower.rank) return `imports ${to}: ${upper.path} and ${lower.path} stand side by side and never import one another`;
  if (upper.rank < lower.rank) return `imports ${to}: imports go down only, and ${lower.path} stands above ${upper.path}`;
  return null;
}

export function layerOf(file: string): Layer | null {
  return LAYERS.find((layer) => (layer.path.endsWith('/') ? file.startsWith(layer.path) : file === layer.path)) ?? null;
}

function sideOf(file: string): string | null {
  return SIDES.find((side) => file.startsWith(side)) ?? null;
}
