/** The cases of bad input and faults that calls, messages and the registry must stand, by family. `make cases` counts these ids, no more and no fewer. */
const FAMILIES = {
  'HTTP adapter': 'C001 C002 C004 C005 C006 C008 C010 C011 C012 C013 C015 C016',
  'SSE and chunk streaming': 'C019 C020 C022',
  Runtime: 'C023 C024',
  'Deadline budget': 'C026 C027 C029',
  Retries: 'C030 C031 C032 C034 C035 C039 C040',
  'gRPC adapter': 'C037 C100 C101 C102 C104 C105',
  'Circuit breaker': 'C041 C042 C043 C044 C046 C047 C049 C050 C051',
  'Routing and health': 'C053 C054 C055 C056 C057 C059 C060 C062 C063',
  'Registry and semver': 'C065 C066',
  'Config and YAML': 'C068 C070 C071 C073 C074',
  NATS: 'C075 C076 C077 C079 C080 C081 C082 C084 C085 C086 C087',
  'Asynchronous work and lanes': 'C089 C090 C091 C093',
  'WebSocket channels': 'C095 C096 C097 C099',
  'JSON-RPC': 'C106 C107 C108',
  Security: 'C114 C116 C117 C118 C120 C122 C123 C124',
  Idempotency: 'C125 C126',
  Observability: 'C128 C129 C131',
  Lifecycle: 'C132 C133 C135',
  'Replay and sandbox': 'C137 C138',
} as const;

export const EXPECTED_CASES: readonly string[] = Object.values(FAMILIES).flatMap((ids) => ids.split(' '));
