/** Looks articles up. It can be made slow from outside, as a knowledge base under load would be. */
import { serve } from '../agent.ts';

serve(
  {
    'kb.article.search': ({ payload }) => ({
      articles: [{ id: 'kb-17', title: 'Orders wait until every item is in stock', about: payload['question'] ?? null }],
      text: 'Orders with an item on backorder ship together, as soon as it is in.',
    }),
  },
  30,
);
