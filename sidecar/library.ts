/** What `import … from 'agent-reach'` offers: the names for those outside. Everything is defined elsewhere. */
export type { Handler } from './embed/agent.ts';
export type { CastOptions, CastResult, TaskStatus } from './embed/casts.ts';
export type { DoneOptions, Mail, MailEntry, MailOptions } from './embed/mail.ts';
export type { CallOptions } from './embed/options.ts';
export { ServedAnswer, type ServedRequest } from './embed/request.ts';
export { ReachError, type Result, type ResultAttempt, type ResultError } from './embed/result.ts';
export type { ReachStream, StreamHead } from './embed/stream.ts';
export { type Reach, type ReachOptions, type ServeOptions, type Serving, startReach } from './embedded.ts';
export { StartRefused } from './sidecar.ts';
