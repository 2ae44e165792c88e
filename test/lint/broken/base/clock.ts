/** The one place that may. */
export function now(): number {
  return Date.now() + performance.now() + new Date().getTime();
}
