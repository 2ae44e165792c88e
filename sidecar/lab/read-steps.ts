/** One step after the other: each is read in its own shape, and what it does to the table is done to the draft at once. */
import { quote } from '../../base/duration.ts';
import { nearest } from '../../base/suggest.ts';
import { BAD, type Bad, type Place } from '../../proto/language/reader.ts';
import { isPlainMap } from '../../proto/language/shapes.ts';
import type { Draft } from './draft.ts';
import { expectedOf } from './arrivals.ts';
import type { CallStep, SendStep, Step, TableStep, TaskSetting, Traffic } from './scenario.ts';
import {
  addStep,
  type CallStepRead,
  callStep,
  checkStep,
  liftStep,
  loadOf,
  MAX_CALLS,
  mockStep,
  overrideStep,
  policiesStep,
  removeStep,
  sendStep,
  type SendStepRead,
  STEP_KINDS,
  tableStep,
  type TrafficRead,
  waitStep,
} from './step-shapes.ts';

type RawMap = Readonly<Record<string, unknown>>;

interface Timing {
  readonly at: number | null;
  readonly after: number | null;
  readonly label: string | null;
  readonly note: string;
}

export class StepReader {
  readonly #draft: Draft;
  readonly #tasks: ReadonlyMap<string, TaskSetting>;
  readonly #caller: string | null;
  readonly #folder: string;
  /** Overrides in force that end by themselves: name → the step that made it, and how long it holds. */
  readonly #expiries = new Map<string, { readonly madeBy: number; readonly forMs: number }>();
  #lastAt = 0;
  #calls = 0;

  constructor(draft: Draft, tasks: ReadonlyMap<string, TaskSetting>, caller: string | null, folder: string) {
    this.#draft = draft;
    this.#tasks = tasks;
    this.#caller = caller;
    this.#folder = folder;
  }

  step(raw: unknown, place: Place, number: number): Step | Bad {
    const kinds = isPlainMap(raw) ? STEP_KINDS.filter((kind) => kind in (raw as RawMap)) : [];
    if (!isPlainMap(raw)) return place.bad(`a step is a map with one of the keys ${STEP_KINDS.join(', ')}, expect`);
    // `wait` and `table` are no keys of any other kind of step, so two of them are a slip.
    if (kinds.length > 1) return place.bad(`a step does one thing, and this one has ${kinds.join(' and ')}: make them two steps`);
    const kind = kinds[0] ?? ('expect' in (raw as RawMap) ? 'check' : null);
    switch (kind) {
      case 'call':
        return made(callStep.read(raw, place), (read) => this.#call(read, place, number));
      case 'send':
        return made(sendStep.read(raw, place), (read) => this.#send(read, place, number));
      case 'mock':
        return made(mockStep.read(raw, place), (read) => {
          for (const agent of read.mock) this.#draft.mock(agent, read.set, place.at('set'), true);
          this.#draft.refuseStrangers(read.mock.map((agent) => [agent, place.at('mock')] as const));
          return this.#table(read, place, number, `mock ${read.mock.join(', ')}: ${shortJson(read.set)}`);
        });
      case 'policies':
        return made(policiesStep.read(raw, place), (read) => {
          this.#draft.takeSection('policies', read.policies, place.at('policies'));
          return this.#table(read, place, number, 'new policies');
        });
      case 'table':
        return made(tableStep.read(raw, place), (read) => {
          if (typeof read.table === 'string') this.#draft.takeFile(read.table, this.#folder, place.at('table'));
          else if (isPlainMap(read.table)) this.#draft.take(read.table as RawMap, place.at('table'));
          else place.at('table').bad('table must be a file name or a map of sections');
          return this.#table(
            read,
            place,
            number,
            `new table${typeof read.table === 'string' ? ` ${read.table}` : `: ${Object.keys(read.table as object).join(', ')}`}`,
          );
        });
      case 'override':
        return made(overrideStep.read(raw, place), (read) => this.#override(read, place, number));
      case 'lift':
        return made(liftStep.read(raw, place), (read) => {
          this.#draft.drop('overrides', 'name', read.lift, place.at('lift'));
          this.#expiries.delete(read.lift);
          return this.#table(read, place, number, `override ${read.lift} lifted`);
        });
      case 'add':
        return made(addStep.read(raw, place), (read) => {
          this.#draft.put('providers', 'agent_id', read.add, place.at('add'));
          return this.#table(read, place, number, `${String(read.add['agent_id'])} joins`);
        });
      case 'remove':
        return made(removeStep.read(raw, place), (read) => {
          this.#draft.drop('providers', 'agent_id', read.remove, place.at('remove'));
          return this.#table(read, place, number, `${read.remove} leaves`);
        });
      case 'wait':
        return made(waitStep.read(raw, place), (read) => ({ ...this.#base(read, place, number), kind: 'wait', ms: read.wait }));
      case 'check':
        return made(checkStep.read(raw, place), (read) => ({ ...this.#base(read, place, number), kind: 'check', expect: read.expect }));
      case null:
        if ('role' in (raw as RawMap) || 'agent' in (raw as RawMap))
          return made(sendStep.read(raw, place), (read) => this.#send(read, place, number));
        return place.bad(
          `a step needs one of the keys ${STEP_KINDS.join(', ')}, expect; this one has ${Object.keys(raw as object).join(', ') || 'none'}${this.#guess(raw as RawMap)}`,
        );
    }
  }

  #guess(raw: RawMap): string {
    for (const key of Object.keys(raw)) {
      const near = nearest(key, STEP_KINDS);
      if (near !== null) return `; did you mean ${near}?`;
    }
    return '';
  }

  #base(read: Timing, place: Place, number: number) {
    if (read.at !== null && read.after !== null) place.at('after').badKey('write either at or after');
    if (read.at !== null && read.at < this.#lastAt)
      place.at('at').bad('steps stand in the order of their time: this one begins before an earlier one');
    if (read.at !== null) this.#lastAt = read.at;
    return { number, line: place.source.lineOf(place.path), label: read.label, note: read.note, atMs: read.at, afterMs: read.after ?? 0 };
  }

  #table(read: Timing, place: Place, number: number, words: string): TableStep | Bad {
    const base = this.#base(read, place, number);
    const document = this.#draft.document();
    return document === null ? BAD : { ...base, kind: 'table', document, words, expiries: new Map(this.#expiries) };
  }

  #override(read: Timing & { readonly override: RawMap; readonly for: number | null }, place: Place, number: number): TableStep | Bad {
    const name = String(read.override['name']);
    this.#draft.put('overrides', 'name', read.override, place.at('override'));
    this.#expiries.delete(name);
    if (read.for !== null) {
      if ('expires' in read.override) place.at('for').badKey('write either for or override.expires');
      this.#expiries.set(name, { madeBy: number, forMs: read.for });
    }
    return this.#table(read, place, number, `override ${name}: ${String(read.override['action'])}`);
  }

  #call(read: CallStepRead, place: Place, number: number): CallStep | Bad {
    const traffic = this.#traffic(read, place);
    if (traffic === BAD || !this.#fitsTask(read, place)) return BAD;
    const headers: Record<string, string> = { ...traffic.headers };
    if (read.affinity !== null) headers['reach-affinity'] = read.affinity;
    else if (read.sessions !== null) headers['reach-affinity'] ??= '$session';
    if (read.key !== null) headers['idempotency-key'] = read.key;
    if (read.pin !== null) headers['reach-pin'] = read.pin;
    if (read.budget !== null) headers['reach-budget'] = read.budget;
    return {
      ...this.#base(read, place, number),
      ...traffic,
      kind: 'call',
      asked: read.call,
      headers,
      stream: read.stream,
      cancelAfterMs: read.cancel_after,
      deadlineMs: read.deadline,
      task: read.task,
      taskStep: read.step,
      expect: read.expect,
    };
  }

  #send(read: SendStepRead, place: Place, number: number): SendStep | Bad {
    if (read.send === null && read.role === null && read.agent === null)
      return place.bad('for whom? Write send: a capability, or role, or agent');
    const traffic = this.#traffic(read, place, read.copies);
    if (traffic === BAD) return BAD;
    if (read.copies > 1 && read.key === null) return place.at('copies').badKey('copies have one key: write key');
    return {
      ...this.#base(read, place, number),
      ...traffic,
      kind: 'send',
      asked: read.send,
      role: read.role,
      agent: read.agent,
      messageType: read.type,
      lane: read.lane,
      key: read.key,
      copies: read.copies,
      tags: read.tags,
      sequenceId: read.sequence ?? (read.sessions === null ? null : '$session'),
      retryable: read.retryable,
      deadlineMs: read.deadline,
      expiresMs: read.expires,
      expect: read.expect,
    };
  }

  /** Who, how often and with what. */
  #traffic(read: TrafficRead, place: Place, copies = 1): Traffic | Bad {
    if (read.as !== null && read.callers !== null) return place.at('callers').badKey('write either as or callers');
    const callers = read.callers ?? (read.as !== null ? [read.as] : this.#caller !== null ? [this.#caller] : null);
    if (callers === null) return place.bad('who calls? Write as: team.role.id here, or once at the top of the scenario');
    const load = loadOf(read, place);
    if (load === BAD) return BAD;
    if (load === null && read.for !== null && read.every === null)
      return place.at('for').badKey('for needs every: how often a call begins, or rate');
    if (read.for !== null && read.times !== null) return place.at('times').badKey('write either times or for');
    const times =
      load !== null
        ? expectedOf(load)
        : read.for === null
          ? (read.times ?? read.parallel)
          : Math.max(1, Math.floor(read.for / (read.every as number))) * read.parallel;
    this.#calls += times * copies;
    if (this.#calls > MAX_CALLS) return place.bad(`the scenario makes more than ${MAX_CALLS} calls`);
    const headers: Record<string, string> = {};
    for (const [key, value] of Object.entries(read.headers)) headers[key.toLowerCase()] = value;
    const { payload, every: everyMs, parallel, sessions } = read;
    return { callers, payload, headers, times, everyMs, parallel, load, sessions };
  }

  #fitsTask(read: CallStepRead, place: Place): boolean {
    if (read.task === null) {
      if (read.step === null) return true;
      place.at('step').badKey('step belongs to a task: name it with task');
      return false;
    }
    const task = this.#tasks.get(read.task);
    if (task === undefined) {
      const near = nearest(read.task, this.#tasks.keys());
      place.at('task').bad(`the scenario has no task ${quote(read.task)}${near === null ? '' : `; did you mean ${near}?`}`);
      return false;
    }
    if (read.deadline !== null) place.at('deadline').badKey('the time comes from the task');
    if (read.step !== null && task.budget === '') place.at('step').badKey(`the task ${read.task} has no budget`);
    return true;
  }
}

function made<T>(value: T | Bad, make: (value: T) => Step | Bad): Step | Bad {
  return value === BAD ? BAD : make(value);
}

function shortJson(value: unknown): string {
  const json = JSON.stringify(value);
  return json.length <= 60 ? json : `${json.slice(0, 57)}...`;
}
