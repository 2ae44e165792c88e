/**
 * A reply is shown while it is written: word by word, from the FastAPI service through two sidecars. Then the service is
 * killed in the middle of another one: what came is not the whole reply, and the caller is told so. It comes back and serves.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Reach } from '../../../sdk/typescript/reach.ts';
import { ReachError } from '../../../sdk/typescript/error.ts';
import type { RegisteredTeam } from '../registered-team.ts';
import { FRONT } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import { SPEAK, TEXT } from '../systems.ts';
import type { Counts } from './scene.ts';

const REPLY = 'Your order 1042 waits for one article and ships tomorrow.';
const PAUSE_MS = 120;
/** How much of the pauses must lie between the first and the last piece. */
const SPREAD = 0.6;
const KILLED_AFTER = 3;
const STREAM_INTERRUPTED = 1006;
const BACK_MS = 10_000;

interface Piece {
  readonly atMs: number;
  readonly word: string;
}

interface Heard {
  readonly pieces: readonly Piece[];
  /** How it ended: 0 = whole, else the code of what cut it. */
  readonly code: number;
  readonly words: string;
}

export async function streamed(team: RegisteredTeam, tell: Storyteller): Promise<Counts> {
  const { place } = team.seat(FRONT);
  const reach = new Reach({ url: `http://${place.listen}`, token: place.token });
  try {
    const whole = await heard(reach, (piece) => tell.say(`  +${piece.atMs.toFixed(0).padStart(4)} ms  ${piece.word}`));
    const [first, last] = [whole.pieces[0]?.atMs ?? 0, whole.pieces.at(-1)?.atMs ?? 0];
    tell.say(`whole: ${whole.pieces.length} pieces, the first ${(last - first).toFixed(0)} ms before the last; ${whole.words}`);
    const least = (REPLY.split(' ').length - 1) * PAUSE_MS * SPREAD;
    tell.equal('the reply', whole.pieces.map(({ word }) => word).join(' '), REPLY);
    tell.equal('how it ended', whole.code, 0);
    tell.check('from the first piece to the last', Math.round(last - first), `at least ${Math.round(least)} ms`, last - first >= least);

    let killing: Promise<void> | null = null;
    const cut = await heard(reach, (piece, count) => {
      tell.say(`  +${piece.atMs.toFixed(0).padStart(4)} ms  ${piece.word}`);
      if (count === KILLED_AFTER) killing = team.shop.kill(TEXT);
    });
    await killing;
    tell.say(`${TEXT.agentId} was killed after the piece no. ${KILLED_AFTER}: ${cut.words}`);
    tell.equal('how the stream of a killed agent ended', cut.code, STREAM_INTERRUPTED);
    const came = cut.pieces.map(({ word }) => word).join(' ');
    tell.check('what had come by then', came, 'a part of the reply', came !== '' && came !== REPLY && REPLY.startsWith(came));

    await team.shop.restart(TEXT);
    const again = await backAgain(reach);
    tell.say(`${TEXT.agentId} is back: ${again.pieces.length} pieces, ${again.words}`);
    tell.equal('the reply after its return', again.pieces.map(({ word }) => word).join(' '), REPLY);
    return { stream_pieces: whole.pieces.length, stream_spread_ms: Math.round(last - first), stream_cut_code: cut.code };
  } finally {
    await reach.close();
  }
}

/** One stream, from its first piece to whatever ends it. */
async function heard(reach: Reach, each: (piece: Piece, count: number) => void, pauseMs = PAUSE_MS): Promise<Heard> {
  const pieces: Piece[] = [];
  const at = performance.now();
  const stream = reach.stream(SPEAK, { text: REPLY, pause_ms: pauseMs });
  try {
    for await (const { event, data } of stream.events()) {
      if (event !== 'word') continue;
      const piece = { atMs: performance.now() - at, word: (JSON.parse(data) as { word: string }).word };
      pieces.push(piece);
      each(piece, pieces.length);
    }
  } catch (error) {
    if (!(error instanceof ReachError)) throw error;
    return { pieces, code: error.code, words: `${error.code} ${error.name}: ${error.result.error.detail}` };
  }
  return { pieces, code: stream.result?.code ?? -1, words: `its end was an end (code ${stream.result?.code}, ${stream.result?.provider})` };
}

/** Who has met it as dead may leave it alone for a moment. */
async function backAgain(reach: Reach): Promise<Heard> {
  const end = performance.now() + BACK_MS;
  for (;;) {
    const again = await heard(reach, () => {}, 0);
    if (again.code === 0 || performance.now() > end) return again;
    await sleep(100);
  }
}
