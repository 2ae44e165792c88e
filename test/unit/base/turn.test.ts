import t from 'tap';
import { atEndOfTurn, endOfTurn, hasEndOfTurn } from '../../../base/turn.ts';

t.test('the end of a turn comes once for all who wait for it, those with work first, and then for the next turn anew', async (t) => {
  const said: string[] = [];
  t.notOk(hasEndOfTurn(), 'nobody waits');
  const first = endOfTurn();
  atEndOfTurn({ turnEnds: () => void said.push('a') });
  atEndOfTurn({ turnEnds: () => (said.push('b'), atEndOfTurn({ turnEnds: () => void said.push('next') })) });
  t.equal(endOfTurn(), first, 'one promise a turn');
  t.ok(hasEndOfTurn());
  void first.then(() => said.push('answer'));
  await Promise.resolve();
  t.same(said, [], 'not within the turn');
  await first;
  t.same(said, ['a', 'b', 'answer']);
  const second = endOfTurn();
  t.not(second, first);
  await second;
  t.same(said, ['a', 'b', 'answer', 'next']);
});
