/**
 * A real Chromium for the tests of the console: found on this machine, or installed by `make browser`. One that is not there is a
 * failure and never a reason to skip.
 */
import { accessSync, constants, mkdirSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { type Browser, type BrowserContext, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { repoFile } from './paths.ts';

/** As distributions call it; the first that is there is taken. */
const NAMES: readonly string[] = ['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome'];
export const NO_BROWSER =
  'No Chromium was found. Get one with "apt-get install chromium" (as root, `make browser` does it by itself), or name one in $REACH_CHROMIUM.';
const LAUNCH_MS = 30_000;

/** The program's path; null = there is none. */
export function chromiumProgram(): string | null {
  const named = process.env['REACH_CHROMIUM'];
  if (named !== undefined && named !== '') return runnable(named);
  for (const name of NAMES)
    for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
      const found = folder === '' ? null : runnable(join(folder, name));
      if (found !== null) return found;
    }
  return null;
}

/** That nobody is signed in, or has not said rightly who he is, is a 401, and every answer of that kind an error to the browser. */
const NOBODY_YET = /status of 401 .*\/v1\/session\)$/;

interface Teardown {
  teardown(end: () => void | Promise<void>): unknown;
}

/** What pages said and asked that they should not have. */
export interface Watched {
  /** Words of the page's console that are no mere notes, and errors that nobody caught. */
  readonly errors: string[];
  /** Requests to any other origin than this one. */
  readonly foreign: string[];
}

export class TestBrowser {
  readonly #browser: Browser;

  static async launch(t: Teardown): Promise<TestBrowser> {
    const executablePath = chromiumProgram();
    if (executablePath === null) throw new Error(NO_BROWSER);
    // In containers everybody is root, and Chromium refuses to make its sandbox for root; what it loads here is our own.
    const isRoot = process.getuid?.() === 0;
    const browser = await chromium.launch({
      executablePath,
      timeout: LAUNCH_MS,
      args: [...(isRoot ? ['--no-sandbox'] : []), '--disable-dev-shm-usage', '--disable-background-networking', '--no-first-run'],
    });
    t.teardown(() => browser.close());
    return new TestBrowser(browser);
  }

  private constructor(browser: Browser) {
    this.#browser = browser;
  }

  /** A person with a browser of their own. */
  async person(options: BrowserContextOptions = {}): Promise<BrowserContext> {
    return this.#browser.newContext({ viewport: { width: 1_280, height: 800 }, ...options });
  }
}

/** @param own origins that may be asked */
export function watched(page: Page, own: string): Watched {
  const seen: Watched = { errors: [], foreign: [] };
  page.on('console', (message) => {
    const words = `${message.text()} (${message.location().url})`;
    if ((message.type() === 'error' || message.type() === 'warning') && !NOBODY_YET.test(words)) seen.errors.push(words);
  });
  page.on('pageerror', (error) => seen.errors.push(error.stack ?? error.message));
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(`${own}/`) && !url.startsWith('data:')) seen.foreign.push(url);
  });
  return seen;
}

const SHOTS = repoFile('build', 'screenshots');

export async function shoot(page: Page, name: string): Promise<void> {
  mkdirSync(SHOTS, { recursive: true });
  await page.screenshot({ path: join(SHOTS, `${name}.png`) });
}

/** By the names that the page keeps for its tests. */
export const by = (name: string, marks = ''): string => `[data-test="${name}"]${marks}`;

function runnable(path: string): string | null {
  try {
    accessSync(path, constants.X_OK);
    return path;
  } catch {
    return null;
  }
}
