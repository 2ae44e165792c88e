// An agent that asks: it says what it wants to the sidecar on its own localhost, with its token, and prints what it gets.
import { readFileSync } from 'node:fs';

const sidecar = process.env.REACH_URL ?? 'http://127.0.0.1:7700';
const token = () => readFileSync(process.env.REACH_TOKEN_FILE ?? '/run/reach/agent-token', 'utf8').trim();
const say = (line) => process.stdout.write(`${line}\n`);
let number = 0;

async function ask() {
  const order = `o-${++number}`;
  try {
    const response = await fetch(`${sidecar}/v1/invoke/shop.order.query@^1.0`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token()}`, 'content-type': 'application/json' },
      body: JSON.stringify({ order }),
    });
    const { code, data, provider, error } = await response.json();
    say(code === 0 ? `${order}: ${data.state}, by ${provider}` : `${order}: ${code} ${error?.name ?? ''} ${error?.detail ?? ''}`);
  } catch (error) {
    say(`${order}: ${error.cause?.code ?? error.message}`);
  }
}

const timer = setInterval(ask, Number(process.env.EVERY_MS ?? 2000));
void ask();
process.on('SIGTERM', () => clearInterval(timer));
