/**
 * Advice on what stands in a table or an operators' document, for docs/config.md; see sidecar.ts. Policies of a call have their advice
 * beside their defaults (proto/language/defaults.ts) and are not repeated here.
 */
import type { Advice } from './advice.ts';

const CONDITION: Advice = {
  status: 'Where the status alone says it (404 for "no such order").',
  pointer: 'The smallest part that says it: the answer is parsed for it.',
  empty: 'For searches: nothing found is an answer.',
  equals: 'For labels such as `neutral`.',
  below: 'For scores: a low confidence is an answer, not a failure.',
  above: 'For scores where high is unsure.',
};

const LOCALITY: Advice = {
  region: 'As on the sidecar that hosts it; absent, that one’s counts.',
  zone: 'The same.',
};

export const TABLE_ADVICE: Advice = {
  contracts: {
    name: 'Say what, not who: the object before the action. It is for good; a new meaning is a new name or a new major.',
    version: 'New optional parts raise the minor, whatever breaks a caller the major: the registry refuses the rest.',
    description: 'One sentence. Models choose by it.',
    examples: 'One that works as it stands.',
    aliases: 'For the time after a rename; take them out when nobody uses them.',
    tags: 'Few, and with one meaning everywhere.',
    input: 'Write one: a bad payload is then refused (4003) before it costs the agent anything.',
    output:
      'Write one where callers rely on the form: an answer that breaks it is 4004 instead of a surprise later. Checking costs time on large answers.',
    execution:
      'The most important line. `once` for whatever cannot be taken back, `keyed` where the agent stores the key together with its effect, `idempotent` only if a second start does no harm.',
    affinity: {
      required: '`true` where an agent has a state that a call without the key would miss.',
      from: 'A header for conversations (nothing is parsed), a pointer where the key is in the payload anyway.',
      mode: '`strict` where another agent would answer wrongly, `soft` where it only answers slower.',
    },
    fallback:
      'A static answer where a poor answer beats none; another capability where one exists; `none` for money, so that it fails loudly.',
    acl: 'Name roles or teams rather than `public`. It is asked at the caller’s sidecar and again at the provider’s; try it with `reachctl acl test`.',
    streaming: '`true` where callers should read piece by piece.',
    success: {
      'definitely[]': CONDITION,
      'unless[]': CONDITION,
    },
  },
  providers: {
    agent_id: 'One for each instance. Let the last part change when the instance does: state such as breakers goes by it.',
    offers: 'All versions that it really serves; two majors side by side ease a change.',
    tags: 'What some instances can and others cannot (`gpu`, `german`).',
    target: 'Few: each set of values that a rule uses is a pool of its own in NATS.',
    endpoint: {
      type: 'What the agent speaks already. `channel` for one that cannot be connected to.',
      address: 'The agent’s own localhost when a sidecar hosts it.',
      path: 'Where the agent has paths of its own; for single capabilities use `mapping`.',
      'mapping.<key>': {
        method: 'As the API wants.',
        path: 'Parts of the payload are escaped before they are put in.',
        query: 'As the API wants.',
        headers: 'Fixed ones such as `accept`; secrets belong into `credential`.',
        body: 'A map where the API wants another form than callers send.',
      },
      credential: {
        header: 'As the API wants.',
        prefix: 'With the space behind it.',
        secret:
          'On the sidecar’s machine alone; no agent and no registry holds the value. A file is read again every 5 s, so a key is replaced without a restart.',
      },
    },
    locality: LOCALITY,
    weight: 'By what the machine bears. `0` takes it out for new calls without a drain.',
    tier: '`backup` for what is dearer or worse, and should only step in.',
    via: 'Always, where a sidecar can stand beside it: only then are limits and breakers exact, and only then can it take messages.',
    limits: { per_provider: 'What it bears at once. Too high shows as slow answers, too low as 3003 and messages that wait.' },
    drain: 'For files; at run time `reachctl providers drain` does it without an edit.',
    health_check: {
      path: 'One that says whether it can work, and does no work itself.',
      interval: 'Lower finds a sick one sooner; three failures in a row take it out.',
    },
  },
  policies: {
    capability: 'General ones first: `*`, then `crm.*`, then names. The more exact one wins, field by field.',
    default_range: 'Set it before a new major comes, so that callers without a range do not move to it by themselves.',
    canary: 'Begin with 1 to 5 %; `reachctl canary` shifts it without an edit.',
    load: '`least_request` unless you know better. `primary_backup` where only one may work at a time.',
    panic: 'Only where a wrong answer is worse than none is not true: a sick provider gets all the load.',
    locality: '`ignore` where all is in one place, or where spreading matters more than distance.',
    slow_start: 'Longer for agents that are slow when cold (caches, models); `0s` for those that are not.',
    acl_mode: '`audit` while a new ACL is tried on real traffic; take the line out afterwards.',
    fallback: 'As in the contract, which it replaces.',
    'providers.<key>': {
      timeout: 'For one instance that is known to be slower.',
      weight: 'For one instance; `reachctl providers weight` does it without an edit.',
      drain: 'For one instance; `reachctl providers drain` does it without an edit.',
    },
  },
  overrides: {
    name: 'What the incident is called.',
    action: '`drain` before `block` where there is time; `degrade` where callers can live with a poor answer.',
    capability: 'As narrow as helps.',
    provider: 'For one sick instance or one third party.',
    caller: 'For one agent that has gone wild.',
    cut: '`true` where what is under way does harm; its callers get 2006, and work of kind `once` that was cut may have been done.',
    to: 'One with the same input and output.',
    data: 'What callers of this capability can read.',
    reason: 'Callers read it in the refusal (2006): say whom to ask.',
    author: 'Who can be asked.',
    expires: 'Always, so that an emergency rule does not become the normal state.',
  },
  sidecars: {
    name: 'As in the settings of that sidecar.',
    mesh: 'Standalone only; with a registry sidecars say it themselves.',
  },
  rules: {
    name: 'Say what it does: senders see it.',
    when: {
      message_type: 'Name it: task and result usually want different rules.',
      source_role: 'For results: the role of the worker.',
      target_role: 'For tasks that address a role.',
      capability: 'Exact names make the most specific rules.',
      tags: 'Few; each value that is used makes a pool.',
      custom_tags: 'For documents that were written for another system; `tags` is shorter.',
    },
    action: {
      dispatch: '`sticky` only where order or a common memory matters: it cannot spread one key.',
      sticky_by: '`sequence_id` for conversations.',
      priority: '`high` for few: it is a share of what is started (60 : 30 : 10), not an overtaking of everything.',
    },
    fallback: {
      if_no_available_agent: '`notify_admin` where a person should look, `fail` where the sender can do something else.',
    },
  },
};
