/** Lets everything settle that needs no timer: a turn of the event loop runs after the microtasks and the sockets' events. */
export async function settle(turns = 2): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await new Promise<void>((done) => setImmediate(done));
}

/** Waits until `holds` gives true, looking every `everyMs`; after `withinMs` it throws and names what it waited for. */
export async function waitUntil(what: string, holds: () => boolean | Promise<boolean>, withinMs = 5_000, everyMs = 10): Promise<void> {
  const end = performance.now() + withinMs;
  for (;;) {
    if (await holds()) return;
    if (performance.now() >= end) throw new Error(`not within ${withinMs} ms: ${what}`);
    await new Promise<void>((done) => setTimeout(done, everyMs));
  }
}
