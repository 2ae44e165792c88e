/** Ctrl-C, a closed terminal, `kill`: whoever runs the team takes it down before leaving. */

const EXIT_BY_SIGNAL: ReadonlyMap<NodeJS.Signals, number> = new Map([
  ['SIGHUP', 129],
  ['SIGINT', 130],
  ['SIGTERM', 143],
]);

/** Calls `leave` once, at the first signal, with the status to exit with. */
export function onLeaving(leave: (status: number) => void): void {
  let left = false;
  for (const [signal, status] of EXIT_BY_SIGNAL) {
    process.on(signal, () => {
      if (left) return;
      left = true;
      leave(status);
    });
  }
}
