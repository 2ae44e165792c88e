/** Advice on each setting of the control plane, for docs/config.md; see sidecar.ts. */
import type { Advice } from './advice.ts';
import { ADDRESSES } from './sidecar.ts';

export const CONTROL_PLANE_ADVICE: Advice = {
  name: 'The name of the machine or pod. Two replicas of one name would take the lease for their own.',
  env: 'The same on all replicas and sidecars of one stage. A change begins an empty registry.',
  nats: {
    url: 'Name all servers of a cluster, so that the loss of one is bridged.',
    credential: {
      user: 'With `password`, where NATS has users of that kind.',
      password: 'By reference. Read anew at each connection, so a new one needs no restart.',
      token: 'Only where NATS has one token for everybody: then nothing confines sidecars.',
      creds_file: 'Where NATS is run with accounts and JWTs (`nsc`). Read anew at each connection.',
      nkey: 'The one to use with a server of your own: `reachctl nats init` makes it, for all replicas together. Read anew at each connection.',
    },
    tls: {
      ca: 'Where the server’s certificate is signed by an authority of your own. With any of the three, nothing is sent to a server that offers no TLS. Name servers as their certificates do, not by number.',
      cert: 'Where the server asks for certificates (`verify: true`).',
      key: 'Readable by this program alone.',
    },
    replicas:
      '3 with a cluster of three servers in three failure domains. Streams that are there already are changed when the control plane starts.',
    monitor:
      'Name them all, in a network that only operators reach: the monitor tells much, without a password. Without it `reachctl fleet` cannot say how durable the queue is.',
  },
  api: {
    listen:
      'Loopback, or an address in a network of operators. The API speaks clear text: put TLS in front of it where the network is not yours.',
    public_url:
      'Needed with `0.0.0.0`, and with several replicas: reachctl is sent there when this one leads. The own address of this replica, not the name of a proxy before all of them.',
    allowed_hosts: 'Add the name of a proxy in front of it (here, not in `public_url`).',
    'operators[]': {
      name: 'One for each person and each program: the audit log shows it, and it is taken away without touching the others.',
      token:
        'By reference, 32 random bytes or more. To replace it, add a second operator first; a change takes a restart, one replica after the other.',
      role: '`viewer` for dashboards and on-call reading, `operator` for those who may change things. Payloads of tasks are shown to operators only.',
    },
    body: 'Raise it when an export has outgrown it.',
    connections: 'Enough for people, scrapers and scripts. Sidecars do not come here, but by NATS.',
  },
  leases: {
    heartbeat: 'The same as `sidecar.registry.heartbeat` of all sidecars.',
    offline_after:
      'Lower takes lost agents away sooner; a pause of the network then takes good ones away too. Agents that say goodbye, and channels that close, are gone at once whatever stands here.',
  },
  leader: {
    ttl: 'Raise it where NATS is slow or far: a leader that cannot renew in time loses its office for nothing. Changes wait for so long after a crash, calls do not.',
    renew: 'A quarter of `ttl` or less.',
  },
  reports_missing_after: 'Lower it where somebody looks at the fleet all day. Nothing is decided by it.',
  pending: 'Raise it for fleets of more than 10,000 agents with long outages of NATS.',
  addresses: ADDRESSES,
  messages: {
    tasks: {
      size: 'What waits at the worst: messages × size × the longest outage of the workers. NATS must have the room (`max_file_store`), else the stream is not made.',
      count: 'So that many tiny messages do not make NATS slow; raise it together with `size`.',
    },
    inbox: {
      size: 'Messages a day × size of a result. Too small loses old results of agents that are away.',
      age: 'As long as agents may be away and still resume. `24h` is what is promised to them.',
      ack_wait: 'Leave it. Shorter gives entries again to a sidecar that only stands still; they come twice then.',
      ack_pending: 'Far above `sidecar.messages.inbox.unacknowledged`. At the bound a sidecar gets no more entries.',
    },
    ledger: {
      keys: 'Keyed tasks and calls a second × `age`; mind the memory of NATS. Full means that keyed work is refused.',
      size: 'Keys × kept results (`sidecar.claims.result`).',
      age: 'As long as senders may repeat. Longer costs memory in NATS, shorter breaks what was promised to repeats.',
    },
    kept: {
      size: 'Raise it where payloads are large: at the bound the oldest are lost unseen.',
      count: 'The same for many small ones.',
      age: 'As long as people may take to look. Nothing is repeated by itself meanwhile.',
    },
    pools:
      'Raise it only with fewer versions and `target` values in mind first: each pool is three consumers, about 40 KB each in NATS, and a longer restart.',
    ack_wait: 'Raise it where sidecars stand still for long. Lower than 15s risks second starts at a pause.',
    ack_pending: 'Raise it when a lane with thousands of failing tasks blocks good ones: those that wait for their next try count.',
    sticky_grace: 'About what a restart of a worker takes. Longer keeps its keys waiting when it does not come back.',
    notices: {
      webhook: 'Set it: work in doubt waits for a person, who must hear of it. It may lie in a private network, since operators name it.',
      secret: 'Set it with the webhook, and check the signature there; else anybody can send notices.',
    },
  },
  identity: {
    signing_key: 'Whoever has it can be every agent: 0600, in a secret store, on the replicas alone. Rotate it as docs/operating.md says.',
    previous_keys: 'Take a key out when the last token signed by it has ended (`reachctl agent list` shows until when).',
    agent_token_ttl: 'As short as you can replace them by themselves: 30d with a scheduled `agent rotate`, 90d by hand.',
    sidecar_token_ttl: 'The same.',
    home_ttl:
      'The longest outage of the control plane and of NATS to be bridged: after it, calls between sidecars are refused (4001). Shorter takes a revoked sidecar’s word away sooner where no push arrives.',
    settle: 'Leave it. `0s` lets a new key sign before every sidecar knows it: calls would be refused for a moment.',
  },
  alerts: {
    p95: {
      enabled: 'Leave it on; where one capability is noisy by nature, switch it off for that one.',
      rise: 'Raise it for capabilities whose load changes what they are asked (reports, batches).',
      for: 'Shorter tells sooner, and of short troubles too. Half an hour of it is told with `25m` at most.',
      baseline: 'Longer than your usual peaks, so that a peak is not its own measure.',
      min_calls: 'Lower it for capabilities with few calls: below about 50 only a large rise can be told from chance.',
      floor: 'What nobody would notice.',
    },
    breakers: {
      enabled: 'Leave it on.',
      openings: 'Raise it for a third party that is known to be weak; better is a fallback.',
      window: '`1h` catches what fails and recovers; shorter only what fails quickly.',
    },
    backlog: {
      enabled: 'Leave it on where messages are used.',
      floor: 'What your workers take in a minute or two.',
      window: 'Longer than a batch takes to be worked off.',
      stuck: 'Longer than the longest work of a single worker; `24h` for queues that are worked on at night only.',
      kept_floor: 'How many a person looks through in an hour.',
    },
    offline: {
      enabled: 'Leave it on, unless agents come and go without a goodbye by design.',
      for: 'About what a restart takes, less the lease.',
    },
    'capabilities[]': {
      match: 'From the general to the exact: what comes last counts.',
      p95: {
        enabled: '`false` for capabilities whose duration is their callers’ business (long work, waiting for people).',
        rise: 'As above, for these.',
        for: 'As above, for these.',
        min_calls: 'As above, for these.',
        floor: 'As above, for these.',
      },
      breakers: { enabled: 'As above, for these.', openings: 'As above, for these.', window: 'As above, for these.' },
      backlog: {
        enabled: 'As above, for these.',
        floor: 'As above, for these.',
        window: 'As above, for these.',
        stuck: '`24h` for work that waits for the night.',
      },
    },
  },
  audit: {
    age: 'As long as your rules of keeping such a log say; export beforehand what must be kept for longer.',
    size: 'Entries × 500 bytes: 256 MiB are half a million orders. Raise it before it is full: then nothing more is recorded.',
    refused_size: 'Raise it where somebody has to look back far at attacks or wrong ACLs.',
  },
  traces: {
    size: 'What you can spare of memory: 128 MiB hold about 100,000 spans: 25,000 calls from sidecar to sidecar. What sidecars tell of good calls is bounded too (`sidecar.traces.max_per_sec`). Each replica holds its own.',
    keep: 'As long as it takes until somebody asks why a call went where it went.',
    keep_troubled:
      'Until the next working day where nobody is on call. What is thrown out before, for want of room, is counted (`/metrics`).',
    slow: 'A little above what your slowest good call takes.',
  },
  console: {
    enabled: '`false` where operators are to use `reachctl` alone.',
    session: 'A working day. Shorter where browsers stand open; it ends at once anyway when the token is changed or taken away.',
  },
  restore: 'Point it at what a nightly `reachctl export` writes, on every replica.',
  log: { level: '`debug` while looking for something.' },
};
