/**
 * Advice on each setting of a sidecar, for docs/config.md: when to change it, and what that does. What a setting is stands in the
 * schema beside the code that reads it; the page is not made while one of them has no advice, or an advice no setting.
 */
import type { Advice } from './advice.ts';

const CREDENTIAL: Advice = {
  user: 'With `password`, where NATS has users of that kind. Nkeys are better: nothing that is worth stealing passes the network.',
  password:
    'By reference in production: what stands in the file is in every copy of it. Read anew at each connection, so a new one needs no restart.',
  token: 'Only where NATS has one token for everybody: then all sidecars are the same to it, and none is confined to its own subjects.',
  creds_file: 'Where NATS is run with accounts and JWTs (`nsc`). Read anew at each connection.',
  nkey: 'The one to use with a server of your own: `reachctl nats sidecar add` makes the key and the permissions that confine this sidecar. Nothing worth stealing passes the network, and a new key needs no restart.',
};

const NATS_TLS: Advice = {
  ca: 'Where the server’s certificate is signed by an authority of your own. With any of the three, nothing is sent to a server that offers no TLS. Name servers as their certificates do, not by number.',
  cert: 'Where the server asks for certificates (`verify: true`).',
  key: 'Readable by this program alone.',
};

export const ADDRESSES: Advice = {
  allow:
    'Name what is needed rather than opening a whole kind of address. The addresses and names at which clouds hand out credentials (169.254.169.254 and the like) stay closed whatever stands here.',
  loopback:
    'Leave it `false` outside of a laptop: a third party that is registered as `127.0.0.1` would lead every sidecar to its own machine.',
  private:
    '`true` where third parties stand in your own networks and whoever may register them is trusted not to name something else there; else name them under `allow`.',
};

export const SIDECAR_ADVICE: Advice = {
  name: 'Keep it for the life of the machine or pod: certificates, NATS permissions, the inbox and the files in `state_dir` go by it. Two sidecars of one name disturb each other.',
  listen:
    'Change the port when 7700 is taken. On another address than loopback everybody who reaches it can try tokens: put it behind TLS, and set `allowed_hosts`.',
  socket_mode: '`"0660"` with a group of its own for agents under another user; then nobody else on the machine can even try a token.',
  api_token: 'Set it where others have accounts on the machine. It is no identity: agents still need their own credential.',
  mesh: {
    listen: 'Usually `0.0.0.0:7701` with `advertise`. Let only sidecars reach it (firewall, NetworkPolicy).',
    token: 'For a mesh of friends. It says that a sidecar belongs to the mesh, not which one it is: use `tls` where that matters.',
    tls: {
      cert: 'Renew it well before it ends: `reachctl sidecar cert`, then put key and certificate in place by rename. `/v1/health` says when it ends.',
      key: 'Readable by the sidecar alone (0600). Replace it together with the certificate.',
      ca: 'To change the authority, first give every sidecar the old and the new one in this file, then new certificates, then take the old one out.',
      reload: 'Leave it. Shorter only matters to tests; longer delays a renewal.',
    },
    advertise:
      'The name or address that other machines use. With `tls` it begins with https://. A wrong one shows as 1001 at every caller of agents here.',
  },
  grpc: {
    listen: 'Change the port when 7702 is taken. Clear text: keep it on loopback, or in the network of one pod.',
    streams: 'Raise it for one client with thousands of long calls; each holds its body in memory. Lower it to make clients wait instead.',
  },
  acl: {
    mode: 'In a fleet that runs already: `audit` for a week, until `reachctl audit` and the counts show nobody who should be let in; then `enforce`. Better for one contract or by a policy than for a whole sidecar.',
  },
  channel: {
    heartbeat:
      'Lower it (30s) where middleboxes forget quiet connections. Each ping costs both ends a packet: 12,000 channels at 45s are 270 a second.',
    offline_after:
      'Three heartbeats. Lower finds dead agents sooner and cuts those that stand still, as in a long garbage collection or a suspended laptop.',
    stall: 'Raise it for agents on bad networks; each that is stuck holds up to `send_buffer` for so long.',
    send_buffer: 'Lower it for thousands of agents (memory = slow agents × this), raise it for few with large messages.',
    ticket_ttl: 'Leave it. A ticket serves once; longer only gives readers of proxy logs more time.',
    connections: 'Set it to what the machine bears: about 16 KB each in the sidecar, and a file handle.',
    in_flight:
      'Lower it for agents that cannot take many calls at once, where `limits.per_provider` of the contract does not say so already.',
  },
  locality: {
    region: 'Set it everywhere or nowhere: a sidecar without one counts as far from all.',
    zone: 'Set it where traffic between zones costs money or time.',
  },
  'callers[]': {
    agent: 'One per process: two processes with one name are one caller to limits, loops and channels.',
    token:
      'By reference in production, 32 random bytes or more. To change it without a gap, let the agent have a second name or use `identity`, whose tokens overlap.',
  },
  operator_token:
    'Set it where a deployment tool registers agents, or where rates are to be changed at run time (`PUT /v1/rates`). Leave it out otherwise.',
  registry: {
    nats: 'Name all servers of a cluster. `tls://` for an encrypted connection.',
    env: 'One for each stage (dev, test, prod): nothing crosses from one to the other. It stands in certificates and tokens.',
    credential: CREDENTIAL,
    tls: NATS_TLS,
    heartbeat:
      'The same as `control_plane.leases.heartbeat`. Lower finds lost sidecars sooner: 200 sidecars at 45s are 5 messages a second.',
    lease: 'Three heartbeats, the same as `control_plane.leases.offline_after`.',
    stale_after: 'Raise it where a short absence of the control plane shall not alert anybody. It changes what is said, not what is done.',
    addresses: ADDRESSES,
  },
  identity: {
    mode: 'In a mesh that runs already: `audit` first, until `reach_identity_events_total` shows no refusal that is not meant; then `enforce`. Not for good: in `audit` a hostile sidecar can speak for any agent.',
    token:
      'Give it the file that `reachctl sidecar add --out` has written. Replace it with `reachctl sidecar rotate` before it ends; the old one counts for 24h more.',
  },
  anonymous: 'For trying things out. Never where anybody else has an account on the machine, or a browser.',
  table: 'Use it where settings and table have different authors, or the table is made by a program.',
  state_dir:
    'A disk that outlives the process and belongs to it alone (0700). With `none` a restart without NATS has no table, and messages that NATS cannot take are refused (7001).',
  allowed_hosts:
    'Add the name under which a gateway is dialled, and no more: every name here is one that a web page in a browser on this machine may be made to carry.',
  limits: {
    body: 'Raise it for documents and images; memory = calls in flight × this. NATS has an own limit for messages (1 MiB).',
    header_bytes: 'Leave it. Raise it only for callers with very large cookies or baggage.',
    connections: 'Lower it to bound memory, raise it together with `ulimit -n`.',
    batch: 'Lower it where one client shall not take the sidecar for long with one request.',
    unsent: 'Lower it where many slow gRPC clients are connected.',
    stall: 'Raise it for slow networks; each stuck connection holds its answer in memory for so long.',
  },
  claims: {
    when_unreachable: 'Leave it on `refuse` for whatever moves money. `pass` only where a repeat does no harm but an outage of NATS would.',
    lease:
      'Raise it where processes stand still for long (virtual machines that are moved): one that is silent for longer loses its work to another. Lower finds a crash sooner.',
    result: 'Raise it where repeats must get large answers; all of them lie in NATS for `control_plane.messages.ledger.age`.',
    late: 'Raise it for work that goes on for long after its caller has gone, where the repeat shall find the answer.',
    memory_keys: 'Raise it with the rate of keyed calls: rate × `memory_age`. 100,000 are 60 MB.',
    memory_bytes: 'Raise it where answers are large and must be repeated whole.',
    memory_age: 'Lower it where keys are many and repeats come soon.',
  },
  messages: {
    rate: {
      per_sec: 'Raise it for everybody only where agents are trusted not to loop; for one, use `rates` or a quota at run time.',
      burst: 'Raise it for agents that collect and send together.',
    },
    'rates[]': {
      agent: 'Importers, crawlers, schedulers: what is known to send much.',
      per_sec: 'What it needs at its peak; NATS and the workers have to bear it.',
      burst: 'The largest batch that it sends at once.',
    },
    ack_wait:
      'Not below 10s with three NATS replicas: a fail-over takes up to 7 s, and what is given up here goes to the disk or is refused.',
    in_flight: 'Lower it to bound memory (in flight × size of a message); raise it where NATS is far away.',
    expires: 'Lower it where old work is worthless; senders can say it for each message.',
    timeouts: {
      task_request: 'Set it to what an honest try takes at most; agents that need more extend it. Too low begins `idempotent` work twice.',
      health_check: 'Leave it.',
      other: 'As `task_request`, for types of your own.',
    },
    remembered:
      'Raise it where senders ask for the state of old tasks often: each question about a forgotten one goes to the control plane.',
    inbox: {
      hot: 'Raise it for agents that are away for longer and then read much; memory pays.',
      size: 'About what all agents here leave unread. Above it reading goes through the control plane, and is slower.',
      agent_size: 'So that one agent that never reads cannot displace the others.',
      agent_count: 'The same, for many small entries.',
      unacknowledged: 'Raise it on a gateway with thousands of agents that are often away.',
    },
    work: {
      concurrency: 'Set it where messages shall leave slots to calls.',
      reserve_high:
        'One or two for agents whose jobs take minutes, so that urgent work does not wait for them. A reserved slot stands idle otherwise.',
      tries: 'Lower it where a failing task does harm each time; higher seldom helps, since seven span about a minute.',
    },
    results: 'Raise it where results are large and asked for again (`GET /v1/tasks/{id}`).',
    outbox: 'Size it by the longest outage of NATS to be bridged: messages a second × bytes × seconds. The disk must have it.',
  },
  shutdown: {
    grace:
      'Raise it to the longest call that must not be cut, and `TimeoutStopSec` or `stop_grace_period` with it. What is not done then is cut, and the process ends with another status than 0.',
    quiet: 'Raise it for agents that think for long between two calls of one piece of work; lower it where restarts must be quick.',
    own_calls: '`all` where agents must be able to begin work until the end, `none` where they are stopped before their sidecar.',
  },
  traces: {
    enabled: 'Off only where the last microseconds count: a failing call is then explained by its own answer and by nothing else.',
    ratio:
      'Leave it at 1 and let `max_per_sec` do the work: at small rates everything is there, at great ones a share. Lower it where a collector is paid by the span.',
    max_per_sec:
      'Raise it where the collector and the memory of the control plane have room: a call makes two spans at its caller, two at its provider, about 1 KB each.',
    slow: 'Set it where slow is known (a promise to a customer). Without it, one call in a hundred is slow by definition.',
    hold: 'Raise it to the longest chain of calls, so that its first hops are still there when its last one fails; `held_spans` must have room.',
    held_spans: 'Rate of calls × spans of one (two to four) × `hold`; beyond that the oldest are not there to be told after all.',
    otlp: {
      url: 'The collector of your own cluster, near by; it batches, samples and passes on better than every sidecar for itself.',
      headers: 'Keep keys out of this file: `{env: NAME}` or `{file: path}`.',
      gzip: 'Over a network that is paid for, or slow; beside the sidecar it only costs time.',
      timeout: 'Leave it. What is not answered by then is sent again, and may stand there twice.',
      queue: 'Bridges a restart of the collector: spans a second × 1 KB × seconds. More only costs memory.',
      service_name: 'Where several sidecars are one service to you, the same name for all; they are told apart by `service.instance.id`.',
    },
  },
  recording: {
    on: '`false` for a sidecar whose calls are recorded only while something is looked into: `reach-sidecar record settings.yaml start`.',
    keep: 'Begin with empty lists: decisions can be tried anew all the same. Name what answers and requests shall be recognised by when they are sent anew (`replay --send`), and nothing that is a secret or about a person.',
    share:
      '1% shows what other settings would do to the traffic as it is. 100% while a fault is hunted, with `cpu: 100%`: each recorded call costs about 100 µs.',
    capability: 'While one capability is looked at; the share is taken before, so raise it too.',
    caller: 'While one agent is looked at; the share is taken before, so raise it too.',
    codes:
      'For a failure that is known by its code. Every call of the share is watched, and those with another code are let go at the end.',
    failed_only: 'With `share: 100%` it keeps every failure; each call is watched all the same.',
    dir: 'A disk of its own where recordings must never take room from anything else. Files are readable by the sidecar alone (0600).',
    max_bytes: 'About 3 KiB a call and twice that with bodies: 256 MiB are some 80,000 calls.',
    file_bytes: 'Smaller files begin anew more often, and each writes the parts of the table that its calls meet again.',
    max_age: 'As long as what is in it may be kept by your own rules.',
    body_bytes: '0 keeps no bodies. Larger ones only matter to `replay --send`.',
    stream_bytes: 'For looking at how answers begin; decisions need none of it.',
    cpu: '100% where every call is to be recorded whatever it costs, as in a test. What is left out is counted in `/v1/recording`.',
  },
  max_deadline: 'Raise it for callers that really wait longer; each call holds its slots for so long. Work of hours belongs in a message.',
  max_hops: 'Lower it where chains are short, to find loops of different agents sooner.',
  retry_budget: {
    ratio: 'Lower it where providers are near their limit: in an outage they get at most this much more. `0%` leaves only `min_per_sec`.',
    min_per_sec: 'Raise it for a sidecar with little traffic whose calls must not fail. It is a floor under the ratio.',
  },
  affinity: {
    entries: 'Conversations at once, and some. What is forgotten is bound anew by its hash, which is usually the same agent.',
    ttl: 'As long as agents keep the state of a conversation; longer only costs memory.',
  },
  connect_timeout: 'Raise it for third parties on other continents (3s). Higher delays the retry elsewhere.',
  connections_per_origin: 'Raise it for one provider with many slow calls: it bounds how many can be under way from here.',
  log: {
    level: '`debug` while looking for something; it writes several lines a call.',
    access: '`all` where each call must be in the log; `off` where metrics are enough.',
  },
  ejection: {
    consecutive: 'Lower it where a provider has good alternatives; `1` leaves it alone after a single lost connection.',
    for: 'Raise it where providers take long to come back and the tries hurt.',
  },
};
