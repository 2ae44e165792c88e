/**
 * The normal form back to the form that people write. What comes over the wire in the normal form is judged by writing it
 * out and reading it again: one set of rules for files and for machines, and whatever the reader would not have made of a
 * text does not get in. Takes anything; what has the wrong type is passed on for the reader to name.
 */

type Loose = Readonly<Record<string, unknown>>;

const isMap = (value: unknown): value is Loose => typeof value === 'object' && value !== null && !Array.isArray(value);

/** A map without what is not said. */
function said(parts: Record<string, unknown>): Record<string, unknown> {
  for (const key of Object.keys(parts)) if (parts[key] === null || parts[key] === undefined) delete parts[key];
  return parts;
}

/** The same, and nothing when nothing is left. */
function saidAny(parts: Record<string, unknown>): Record<string, unknown> | null {
  return Object.keys(said(parts)).length === 0 ? null : parts;
}

function inMap(value: unknown, write: (map: Loose) => unknown): unknown {
  return isMap(value) ? write(value) : value;
}

function each(value: unknown, write: (entry: unknown) => unknown): unknown {
  return Array.isArray(value) ? value.map(write) : value;
}

const ms = (value: unknown): unknown => (typeof value === 'number' ? `${value}ms` : value);
const unlessEmpty = (value: unknown): unknown => (value === '' ? null : value);

function limits(value: unknown): unknown {
  return inMap(value, (read) =>
    saidAny({
      per_caller: read['perCaller'],
      per_provider: read['perProvider'],
      request: read['requestBytes'],
      response: read['responseBytes'],
      event: read['eventBytes'],
    }),
  );
}

function retry(value: unknown): unknown {
  return inMap(value, (read) =>
    saidAny({
      max: read['max'],
      backoff: ms(read['backoffMs']),
      backoff_max: ms(read['backoffMaxMs']),
      min_remaining: read['minRemainingRatio'],
    }),
  );
}

function breaker(value: unknown): unknown {
  return inMap(value, (read) =>
    saidAny({
      enabled: read['enabled'],
      failure_ratio: read['failureRatio'],
      window: ms(read['windowMs']),
      slow_ratio: read['slowRatio'],
      slow_call: ms(read['slowCallMs']),
      min_calls: read['minCalls'],
      open: ms(read['openMs']),
      probes: read['probes'],
      successes: read['successes'],
      ramp: read['ramp'],
      ramp_step: ms(read['rampStepMs']),
    }),
  );
}

function fallback(value: unknown): unknown {
  return inMap(value, (read) => {
    const chain = read['chain'];
    if (Array.isArray(chain) && chain.length === 0) return 'none';
    return each(chain, (step) =>
      inMap(step, (one) => {
        switch (one['kind']) {
          case 'capability':
            return { capability: one['target'] };
          case 'provider':
            return { provider: one['agentId'] };
          case 'static':
            return { static: one['data'] };
          default:
            return one;
        }
      }),
    );
  });
}

function condition(value: unknown): unknown {
  return inMap(value, (read) => {
    const parts = said({
      status: read['status'],
      pointer: read['pointer'],
      empty: read['empty'],
      below: read['below'],
      above: read['above'],
    });
    if (read['equals'] !== undefined) parts['equals'] = read['equals'];
    return parts;
  });
}

function acl(value: unknown): unknown {
  return inMap(value, (read) => {
    if (read['isPublic'] === true) return 'public';
    const allow = each(read['patterns'], (pattern) => (isMap(pattern) ? pattern['text'] : pattern));
    return read['mode'] === undefined ? allow : { allow, mode: read['mode'] };
  });
}

function affinityFrom(value: unknown): unknown {
  return inMap(value, (from) => (typeof from['header'] === 'string' ? `header:${from['header']}` : from['pointer']));
}

/** `true` where nothing else is said: the short form that people write. */
export function writeStreaming(value: unknown): unknown {
  return inMap(value, (rule) => saidAny({ done: rule['done'], first_chunk: ms(rule['firstChunkMs']), idle: ms(rule['idleMs']) }) ?? true);
}

/** A contract as it would stand in a file. */
export function writeContract(value: unknown): unknown {
  return inMap(value, (read) =>
    said({
      name: read['name'],
      version: read['version'],
      description: unlessEmpty(read['description']),
      examples: read['examples'],
      aliases: read['aliases'],
      tags: read['tags'],
      input: read['input'],
      output: read['output'],
      execution: read['execution'],
      affinity: inMap(read['affinity'], (rule) => ({ required: rule['required'], from: affinityFrom(rule['from']), mode: rule['mode'] })),
      timeout: ms(read['timeoutMs']),
      deadline: ms(read['deadlineMs']),
      retry: retry(read['retry']),
      breaker: breaker(read['breaker']),
      limits: limits(read['limits']),
      fallback: fallback(read['fallback']),
      acl: acl(read['acl']),
      streaming: writeStreaming(read['streaming']),
      success: inMap(read['success'], (rule) => ({
        definitely: each(rule['definitely'], condition),
        unless: each(rule['unless'], condition),
      })),
    }),
  );
}

function mapping(value: unknown): unknown {
  return inMap(value, (all) =>
    Object.fromEntries(
      Object.entries(all).map(([name, one]) => [
        name,
        inMap(one, (read) => ({
          method: read['method'],
          path: read['path'],
          query: read['query'],
          headers: read['headers'],
          body: isMap(read['body']) ? read['body']['template'] : read['body'],
        })),
      ]),
    ),
  );
}

function endpoint(value: unknown): unknown {
  return inMap(value, (read) => {
    const credential = inMap(read['credential'], (one) =>
      said({ header: one['header'], prefix: unlessEmpty(one['prefix']), secret: one['secret'] }),
    );
    if (read['type'] === 'http')
      return said({ type: 'http', address: read['address'], path: read['path'], mapping: mapping(read['mapping']), credential });
    return said({
      ...(isMap(read['options']) ? read['options'] : {}),
      type: read['type'],
      address: unlessEmpty(read['address']),
      credential,
    });
  });
}

/** A provider record as it would stand in a file. */
export function writeProvider(value: unknown): unknown {
  return inMap(value, (read) =>
    said({
      agent_id: read['agentId'],
      offers: each(read['offers'], (offer) => (isMap(offer) ? `${String(offer['name'])}@${String(offer['version'])}` : offer)),
      tags: read['tags'],
      target: read['target'],
      endpoint: endpoint(read['endpoint']),
      locality: saidAny({ region: read['region'], zone: read['zone'] }),
      weight: read['weight'],
      tier: read['tier'],
      via: read['via'],
      limits: limits(read['limits']),
      drain: read['drain'],
      health_check: inMap(read['healthCheck'], (check) => ({ path: check['path'], interval: ms(check['intervalMs']) })),
    }),
  );
}
