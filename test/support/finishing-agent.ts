/**
 * An agent that has work to finish when it is told to stop: a program of its own. Arguments: URL of its sidecar, its token, the
 * capability that it needs, how many calls, how long between them, and
 * whether it says that it has finished. It answers what it is asked when it has.
 */
import { createServer, type ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

const [sidecar = '', token = '', needs = '', calls = '3', everyMs = '600', says = ''] = process.argv.slice(2);
const open: ServerResponse[] = [];

const server = createServer((request, response) => {
  request.resume();
  open.push(response);
});
server.listen(0, '127.0.0.1', () => say({ port: (server.address() as { port: number }).port }));

function say(line: object): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

async function call(number: number): Promise<string> {
  const began = Date.now();
  const outcome = await fetch(`${sidecar}/v1/invoke/${needs}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ number }),
  }).then(
    async (answer) => `${answer.status} ${String(((await answer.json()) as { code?: number }).code)}`,
    (error: unknown) => `broken: ${String((error as { cause?: unknown }).cause ?? error)}`,
  );
  say({ call: number, outcome, at: began });
  return outcome;
}

process.once('SIGTERM', () => {
  void (async () => {
    const outcomes: string[] = [];
    for (let n = 1; n <= Number(calls); n++) {
      await sleep(Number(everyMs));
      outcomes.push(await call(n));
    }
    for (const response of open)
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ finished: outcomes }));
    if (says !== '')
      await fetch(`${sidecar}/v1/agents/${says}/finished`, { method: 'POST', headers: { authorization: `Bearer ${token}` } }).then(
        ({ status }) => say({ finished: status }),
        () => undefined,
      );
    setTimeout(() => process.exit(0), 50);
  })();
});

// An agent calls its sidecar now and then; so this one has before it is told to stop.
if (sidecar !== '') void call(0);
