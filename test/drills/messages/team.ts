/**
 * The team of the drills with messages: workers written in Python that offer all three kinds of work, each behind a sidecar of its
 * own, and senders that only submit. Quotas are raised, and stated in each drill's report; everything else is as it comes.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { parse, stringify } from 'yaml';
import type { Place, TeamText } from '../../../deploy/local/files.ts';
import { pythonPath } from '../../../deploy/local/python.ts';
import { RegisteredTeam } from '../../../deploy/local/registered-team.ts';
import type { Member } from '../../../deploy/local/roster.ts';
import { treeFile } from '../../../deploy/local/tree.ts';

export const KINDS = ['keyed', 'idempotent', 'once'] as const;
export type Kind = (typeof KINDS)[number];
export const capabilityOf = (kind: Kind): string => `drill.${kind}.do`;

const VERSION = '1.0.0';
const WORKER = treeFile('test', 'drills', 'messages', 'worker.py');
/** Named from where the team starts its programs. */
const WORKER_PROGRAM = '../../test/drills/messages/worker.py';
/** Messages and calls that one agent works on at a time. */
export const PER_PROVIDER = 16;
const MOST_COUNTED_BYTES = 256 * 1_048_576;
export const QUOTA = '{per_sec: 100000, burst: 100000}';

export function worker(name: string): Member {
  const offers = KINDS.map((kind) => `${capabilityOf(kind)}@${VERSION}`);
  return { agentId: `drill.worker.${name}`, program: WORKER_PROGRAM, sidecar: name, zone: 'a', offers };
}

export function sender(name: string): Member {
  return { agentId: `drill.sender.${name}`, program: null, sidecar: name, zone: 'a', offers: [] };
}

export interface TeamOptions {
  /** Of each piece of work. */
  readonly workMs: number;
  /** `messages` of every sidecar; default: only the quota is raised. */
  readonly messages?: Readonly<Record<string, unknown>>;
  /** Contracts and policies beside those of the three kinds of work. */
  readonly more?: TeamText;
  /** What one agent works on at a time, if that is more than its messages. */
  readonly perProvider?: number;
  /** Further agents of the senders' sidecars, with their tokens. */
  readonly callers?: readonly { readonly agent: string; readonly token: string }[];
}

export class MessageTeam extends RegisteredTeam {
  readonly #options: TeamOptions;
  /** For the next start of a sidecar, by its agent. */
  readonly failpoints = new Map<string, string>();

  constructor(options: TeamOptions) {
    super({
      contracts: [
        ...KINDS.map((kind) => ({
          name: capabilityOf(kind),
          version: VERSION,
          execution: kind,
          timeout: '10s',
          acl: 'public',
          limits: { per_provider: options.perProvider ?? PER_PROVIDER },
        })),
        ...(options.more?.contracts ?? []),
      ],
      policies: options.more?.policies ?? [],
    });
    this.#options = options;
    // Read by the workers, whose processes are started with our environment.
    process.env['DRILL_FOLDER'] = this.folder;
    process.env['DRILL_WORK_MS'] = String(options.workMs);
  }

  protected override settingsOf(place: Place): string {
    const read = parse(super.settingsOf(place)) as { sidecar: Record<string, unknown> & { callers: unknown[] } };
    read.sidecar['messages'] = this.#options.messages ?? { rate: parse(QUOTA) as unknown };
    if (place.member.program === null) read.sidecar.callers.push(...(this.#options.callers ?? []));
    return stringify(read);
  }

  protected override sidecarEnv(member: Member): Record<string, string> {
    const failpoint = this.failpoints.get(member.agentId);
    return failpoint === undefined ? {} : { REACH_FAILPOINT: failpoint };
  }

  /** What the workers wrote, counted. */
  async counted(): Promise<Counted> {
    const { stdout } = await promisify(execFile)(pythonPath(), [WORKER, '--count', this.folder], { maxBuffer: MOST_COUNTED_BYTES });
    return JSON.parse(stdout) as Counted;
  }
}

/** By the number of the message: how often. */
type Times = Readonly<Record<string, number>>;

export interface Counted {
  readonly keyed: Worked & { readonly effects: Times };
  readonly idempotent: Worked;
  readonly once: Worked & {
    /** When the last start was, by the wall clock; absent: from a worker that does not write it down. */
    readonly began?: Times;
  };
  /** Absent: from a worker that takes no calls. */
  readonly call?: Worked & {
    /** Agents that have carried it out, by the number of the call. */
    readonly by: Readonly<Record<string, readonly string[]>>;
  };
}

interface Worked {
  readonly starts: Times;
  readonly ends: Times;
}
