export function started(): number {
  setTimeout(() => undefined, 1);
  setInterval(() => undefined, 1);
  setImmediate(() => undefined);
  globalThis.setTimeout(() => undefined, 1);
  AbortSignal.any([AbortSignal.timeout(1)]);
  return Date.now() + Math.random() + performance.now() + new Date().getTime();
}
