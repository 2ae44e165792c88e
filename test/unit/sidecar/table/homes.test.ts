/** The statements that this sidecar shows: who waits for one, and for how long. On a bus that says what the test wants. */
import { pino } from 'pino';
import t from 'tap';
import type { BusReply } from '../../../../base/bus-message.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { Subjects } from '../../../../proto/wire/subjects.ts';
import { Homes, type HomesParts } from '../../../../sidecar/table/homes.ts';
import { settle } from '../../../support/settle.ts';

const AGENT = 'crm.bot.a1';

function world() {
  const clock = new VirtualClock();
  const link = { connected: true, answer: (): BusReply => ({ kind: 'no_responder' }) };
  const bus = {
    get connected() {
      return link.connected;
    },
    request: async () => link.answer(),
  } as unknown as HomesParts['bus'];
  const homes = new Homes({
    bus,
    subjects: new Subjects('test', 'one'),
    env: 'test',
    clock,
    log: pino({ level: 'silent' }),
    sidecar: 'one',
    instance: 'i',
    token: () => 'x',
    wanted: () => [AGENT],
    isAdmitted: () => true,
    file: null,
  });
  const waits = async (): Promise<() => boolean> => {
    let isOver = false;
    void homes.arrived(AGENT).then(() => {
      isOver = true;
    });
    await settle();
    return () => isOver;
  };
  return { clock, link, homes, waits };
}

const refusal = JSON.stringify({ wire: 1, ok: false, homes: {}, refused: [{ agent: AGENT, code: 4_002, problems: ['no'] }] });

t.test('nobody waits without end for a statement that never comes', async (t) => {
  const { clock, homes, waits } = world();
  homes.look();
  const isOver = await waits();
  t.notOk(isOver(), 'it may come in a moment');
  await clock.advanceTo(clock.now() + 2_000);
  await settle();
  t.ok(isOver(), 'each call that waits holds its payload');
});

t.test('nobody waits for what was refused, or when nobody can be asked', async (t) => {
  const { link, homes, waits } = world();
  link.answer = () => ({ kind: 'ok', message: { subject: '', data: Buffer.from(refusal), reply: '', header: () => null } });
  homes.look();
  await settle();
  t.same([...homes.refused], [[AGENT, 'no']]);
  t.ok((await waits())());
  link.connected = false;
  t.ok((await waits())());
});
