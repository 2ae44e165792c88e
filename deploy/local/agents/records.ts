/**
 * Keeps the customers' records, for several kinds of work. Notes may stand there twice. Copies into the archive are made
 * once for a key: the archive takes a copy and its key in one step, and none for a key that it has; whoever asks again is
 * answered as the first was. An invoice that was sent is sent. What was begun and what was done goes to the journal at once.
 */
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { note, self, serve } from '../agent.ts';

/** Between the effect and the answer: the time in which a death leaves the others in the dark. */
const ANSWER_MS = 700;
const NOTE_MS = 150;

serve(
  {
    'crm.customer.note': async ({ payload }) => {
      await sleep(NOTE_MS);
      note(`noted ${String(payload['note'])}`);
      return { note: payload['note'] ?? null, by: self.agentId };
    },
    'crm.customer.copy': async ({ payload, key }) => {
      note(`started ${key}`);
      const copy = copied(key, { customer: payload['customer'] ?? null, data: payload['data'] ?? null, by: self.agentId });
      note(`archived ${key}`);
      await sleep(ANSWER_MS);
      return copy;
    },
    'crm.invoice.send': async ({ payload }) => {
      const invoice = String(payload['invoice']);
      note(`started ${invoice}`);
      await sleep(ANSWER_MS);
      note(`sent ${invoice}`);
      return { invoice, state: 'sent', by: self.agentId };
    },
  },
  4,
);

/** Puts it there, whole and with its key, or finds what the key had put there before. A name that exists is not linked a second time. */
function copied(key: string, data: object): unknown {
  const archive = join(self.store, 'archive');
  mkdirSync(archive, { recursive: true });
  const copy = join(archive, `${createHash('sha256').update(key).digest('hex')}.json`);
  const draft = join(self.store, `draft-${randomBytes(8).toString('hex')}`);
  writeFileSync(draft, JSON.stringify({ key, ...data }));
  try {
    linkSync(draft, copy);
  } catch (error) {
    if (!existsSync(copy)) throw error;
  } finally {
    rmSync(draft);
  }
  return JSON.parse(readFileSync(copy, 'utf8'));
}
