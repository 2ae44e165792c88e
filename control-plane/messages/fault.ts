/** What went wrong in a way that nobody expected, for the log: what is looked at in the background must not end the process with it. */
export function faultOf(error: unknown): string {
  return `a fault in Agent-Reach (${error instanceof Error ? error.message : 'unknown'})`;
}
