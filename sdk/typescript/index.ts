/** What `@agent-reach/sdk` offers: the names for those outside. Everything is defined elsewhere. */
export { AgentError } from './serve/agent-error.ts';
export type { Acl, ServeOptions } from './serve/offer.ts';
export type { Context } from './serve/context.ts';
export type { Handler } from './serve/handlers.ts';
export type { RunOptions, Serving } from './serve/serving.ts';
export type { InvokeOptions } from './ask.ts';
export type { Address, CastOptions } from './cast.ts';
export { ReachError } from './error.ts';
export { InboxError, type Inbox, type InboxMessage, type InboxOptions } from './inbox.ts';
export type { ReachOptions } from './options.ts';
export { Reach } from './reach.ts';
export type { Attempt, ErrorInfo, Failure, Result, Success } from './result.ts';
export type { StreamEvent } from './events.ts';
export type { ReachStream, StreamHead } from './stream.ts';
export type { Accepted, Task, TaskState, TaskStatus } from './task.ts';
export type { DoneOptions } from './work.ts';
