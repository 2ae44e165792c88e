/**
 * What is sent and answered: 1,024 bytes of JSON each way, shaped like a real question about an order, and the schema that
 * the contract holds it against. Bytes are made once; no program of the bench builds JSON per call.
 */

const BYTES = 1_024;

/** Schema of the question: nested, with patterns, ranges, a format and closed objects, as a careful team would write it. */
export const QUESTION_SCHEMA: unknown = {
  type: 'object',
  required: ['session_id', 'customer', 'order', 'question'],
  additionalProperties: false,
  properties: {
    session_id: { type: 'string', pattern: '^[0-9a-f-]{36}$' },
    locale: { type: 'string', maxLength: 16 },
    question: { type: 'string', minLength: 1, maxLength: 2_000 },
    customer: {
      type: 'object',
      required: ['id', 'tier'],
      additionalProperties: false,
      properties: {
        id: { type: 'string', pattern: '^C[0-9]{6,12}$' },
        tier: { enum: ['basic', 'plus', 'business'] },
        since: { type: 'string', format: 'date-time' },
      },
    },
    order: {
      type: 'object',
      required: ['id', 'lines'],
      additionalProperties: false,
      properties: {
        id: { type: 'string', pattern: '^O-[0-9]{4}-[0-9]{6}$' },
        placed_at: { type: 'string', format: 'date-time' },
        currency: { type: 'string', minLength: 3, maxLength: 3 },
        lines: {
          type: 'array',
          minItems: 1,
          maxItems: 100,
          items: {
            type: 'object',
            required: ['sku', 'quantity', 'unit_price'],
            additionalProperties: false,
            properties: {
              sku: { type: 'string', maxLength: 40 },
              title: { type: 'string', maxLength: 200 },
              quantity: { type: 'integer', minimum: 1, maximum: 10_000 },
              unit_price: { type: 'number', minimum: 0 },
            },
          },
        },
      },
    },
    history: { type: 'array', maxItems: 50, items: { type: 'string', maxLength: 2_000 } },
  },
};

const question = {
  session_id: '8d1f6a0c-52be-4f0a-9c37-0b6f3f1d2e45',
  locale: 'en-GB',
  question: 'Why has my order not been shipped yet? The page says it is packed since Tuesday.',
  customer: { id: 'C00417723', tier: 'plus', since: '2019-03-14T08:21:07Z' },
  order: {
    id: 'O-2026-004711',
    placed_at: '2026-02-03T17:45:12Z',
    currency: 'EUR',
    lines: [
      { sku: 'LMP-3301-OAK', title: 'Desk lamp, oak', quantity: 1, unit_price: 64.9 },
      { sku: 'CHR-1180-GRY', title: 'Chair, grey', quantity: 4, unit_price: 119 },
      { sku: 'CBL-0007-2M', title: 'Cable, two metres', quantity: 2, unit_price: 7.5 },
    ],
  },
  history: ['Hello, I have a question about a delivery.', ''],
};

const answer = {
  order: 'O-2026-004711',
  state: 'packed',
  reason: 'One item is waiting for the carrier: the chair is sent by a forwarder who comes on Fridays.',
  parcels: [
    { id: 'P-88120017', carrier: 'post', state: 'handed_over', items: ['LMP-3301-OAK', 'CBL-0007-2M'], updated_at: '2026-02-05T09:12:44Z' },
    { id: 'P-88120018', carrier: 'forwarder', state: 'waiting', items: ['CHR-1180-GRY'], updated_at: '2026-02-05T09:12:44Z' },
  ],
  expected: { from: '2026-02-07', until: '2026-02-09', confidence: 0.93 },
  sources: ['warehouse', 'carrier', 'order'],
  text: '',
};

/** Puts words into the empty place until the JSON has exactly 1,024 bytes. */
function filled<T>(value: T, put: (value: T, words: string) => void): Buffer {
  const missing = BYTES - Buffer.byteLength(JSON.stringify(value));
  if (missing < 0) throw new Error(`the payload has ${-missing} bytes too many`);
  put(value, 'The carrier has been asked and says that nothing is lost. '.repeat(20).slice(0, missing));
  return Buffer.from(JSON.stringify(value));
}

export const QUESTION: Buffer = filled(question, (value, words) => {
  value.history[1] = words;
});

export const ANSWER: Buffer = filled(answer, (value, words) => {
  value.text = words;
});
