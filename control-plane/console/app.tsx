/**
 * The console: one page, served by the control plane and made of nothing from outside. It shows what the API answers (GET only),
 * and orders what reachctl can order; it decides nothing itself. What comes from the API is text of strangers: it is only ever
 * shown as text, and every link goes to a page of this console.
 *
 * Names that tests hold on to (`data-test`), which stay as they are:
 *   sign-in-token, sign-in-submit, sign-in-error · sign-out, who
 *   nav-<page> (overview topology traces capabilities agents messages rules quotas shifts fleet alerts audit), live-state (data-state: live, polling, lost)
 *   problem (data-kind, data-severity; inside: problem-capability, problem-agent, problem-sidecar, problem-trace: links)
 *   capability-row (data-name; inside: capability-link) · capability-head · provider-row (data-name)
 *   failure-row (data-trace; inside: failure-link) · trace-row (data-trace; inside: trace-link) · trace-search
 *   timeline, span-row (data-stage, data-depth, data-code, data-orphan), trace-complete or trace-incomplete, trace-gap, trace-why
 *   red-button (in the bar, on every page), red-panel, red-here-<action> (on a capability's page: block drain reroute degrade)
 *   red-action, red-kind, red-for (selects), red-name, red-to, red-reason, red-cut, red-words, red-next; then red-hits, red-typed (only
 *   for what covers many), confirm; then red-progress (data-in-force, data-of; inside: red-as-of)
 *   override-row (data-id; inside: lift, then confirm)
 *   topology, topology-node, topology-picture, topology-table, cycles, edge-row · agent-row (data-name, data-status)
 *   messages-<view>, pool-row, kept-row (data-task), kept-link, task-release, task-reroute, task-drop, redrive
 *   rule-row, finding, rollout, version-row (data-version), roll-back · quota-row · shift-row, shift-new, shift-form
 *   sidecar-row (data-name, data-standing) · alert-row (data-id, data-state), silence, silence-row · audit-row
 *   confirm, cancel, field, reason, typed: in every window that asks a second time · help, theme, search, said, viewer-note
 *   page-problem (an error of the API, with its words), page-fault (one of ours), empty, stale
 */
import { type ComponentChildren, render } from 'preact';
import { useEffect, useErrorBoundary, useMemo, useRef, useState } from 'preact/hooks';
import { type Clock, realClock, type Timer } from '../../base/clock.ts';
import { type Address, type PageName, pageAddress, PAGES, readAddress } from './address.ts';
import { Firing, LiveWord, RedButton } from './bar.tsx';
import { Client } from './client.ts';
import { type Console, ConsoleContext, NowContext, type RedPreset } from './context.tsx';
import { Help } from './help.tsx';
import { useKeys } from './keyboard.tsx';
import { Live, type LiveState, type Source } from './live.ts';
import { AgentPage, AgentsPage } from './pages/agents.tsx';
import { AlertsPage } from './pages/alerts.tsx';
import { AuditPage } from './pages/audit.tsx';
import { CapabilitiesPage } from './pages/capabilities.tsx';
import { CapabilityPage } from './pages/capability.tsx';
import { FleetPage } from './pages/fleet.tsx';
import { MessagesPage } from './pages/messages.tsx';
import { OverviewPage } from './pages/overview.tsx';
import { QuotasPage } from './pages/quotas.tsx';
import { RulesPage } from './pages/rules.tsx';
import { ShiftsPage } from './pages/shifts.tsx';
import { TaskPage } from './pages/task.tsx';
import { TopologyPage } from './pages/topology.tsx';
import { TracePage } from './pages/trace.tsx';
import { TracesPage } from './pages/traces.tsx';
import { Said, SaidContext, type Saying } from './parts/said.tsx';
import type { NamedOrder } from './red-order.ts';
import { RedPanel } from './red.tsx';
import type { Session, SessionEnded } from './shapes.ts';
import { SharedSource } from './shared-source.ts';
import { SignIn } from './sign-in.tsx';
import { nextTheme, useTheme } from './theme.tsx';

const LABELS: Readonly<Record<PageName, string>> = {
  overview: 'Overview',
  topology: 'Topology',
  capabilities: 'Capabilities',
  traces: 'Traces',
  messages: 'Messages',
  rules: 'Rules & policies',
  quotas: 'Quotas',
  shifts: 'Shifts',
  agents: 'Agents',
  fleet: 'Fleet',
  alerts: 'Alerts',
  audit: 'Audit',
};
const SAID_MS = 7_000;
/** Who is signed in, while nobody answers that. */
const ASK_AGAIN_MS = 3_000;

interface RootProps {
  readonly client: Client;
  readonly clock: Clock;
}

function Root({ client, clock }: RootProps) {
  /** undefined = not known yet. */
  const [session, setSession] = useState<Session | null | undefined>(undefined);
  const [why, setWhy] = useState('');
  const take = (given: Session): void => {
    client.csrf = given.csrf;
    setWhy('');
    setSession(given);
  };
  useEffect(() => {
    client.onSignedOut = () => {
      setWhy('Your session is over.');
      setSession(null);
    };
    client.onChanged = take;
    let again: Timer | null = null;
    const ask = async (): Promise<void> => {
      const answer = await client.get<Session>('/v1/session');
      // Signed in meanwhile.
      if (client.csrf !== '') return;
      if ('ok' in answer) return take(answer.ok);
      setSession(null);
      if (answer.problem.status === 401) return setWhy('');
      // That says nothing of who is signed in.
      setWhy(`${answer.problem.detail}.`);
      again = clock.after(ASK_AGAIN_MS, () => void ask());
    };
    void ask();
    return () => again?.cancel();
  }, [client, clock]);
  if (session === undefined)
    return (
      <main class="sign-in">
        <p role="status">Asking who you are …</p>
      </main>
    );
  if (session === null) return <SignIn client={client} why={why} onSession={take} />;
  return <Shell client={client} clock={clock} session={session} onOut={(words) => (setWhy(words), setSession(null))} />;
}

interface ShellProps extends RootProps {
  readonly session: Session;
  readonly onOut: (why: string) => void;
}

function Shell({ client, clock, session, onOut }: ShellProps) {
  const [address, setAddress] = useState<Address>(() => readAddress(location.hash));
  const [red, setRed] = useState<RedPreset | null>(null);
  const [isHelp, setHelp] = useState(false);
  const [isMenu, setMenu] = useState(false);
  const [said, setSaid] = useState<readonly Saying[]>([]);
  const [theme, setTheme] = useTheme();
  const live = useMemo(() => new Live({ clock, open: () => openStream(clock) }), [clock]);
  const [liveState, setLiveState] = useState<LiveState>(live.state);
  const sayings = useRef(0);
  const unsure = useRef<NamedOrder | null>(null);
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    client.onReach = (isReached) => live.reached(isReached);
    const off = live.onState(() => setLiveState(live.state));
    const looked = (): void => (document.hidden ? live.stop() : live.start());
    const left = (): void => live.stop();
    looked();
    document.addEventListener('visibilitychange', looked);
    addEventListener('pagehide', left);
    addEventListener('pageshow', looked);
    return () => {
      off();
      document.removeEventListener('visibilitychange', looked);
      removeEventListener('pagehide', left);
      removeEventListener('pageshow', looked);
      live.stop();
    };
  }, [client, live]);
  useEffect(() => {
    const moved = (): void => {
      setAddress((before) => {
        const next = readAddress(location.hash);
        const isSame = before.page === next.page && before.item === next.item && before.id === next.id;
        // Another page begins at its top, and with the keyboard's focus in it.
        if (!isSame) {
          scrollTo(0, 0);
          main.current?.focus({ preventScroll: true });
        }
        return next;
      });
      setMenu(false);
      setRed(null);
      setHelp(false);
    };
    addEventListener('hashchange', moved);
    return () => removeEventListener('hashchange', moved);
  }, []);
  const name = address.item === null ? LABELS[address.page] : address.id;
  useEffect(() => {
    document.title = `${name} · ${session.env} · Agent-Reach`;
  }, [name, session.env]);
  const context = useMemo(
    (): Console => ({
      client,
      live,
      clock,
      session,
      mayAct: session.role === 'operator',
      address,
      openRed: (preset = {}) => setRed(preset),
      unsure,
      say: (words) => {
        const id = ++sayings.current;
        setSaid((before) => [...before.slice(-3), { id, words }]);
        clock.after(SAID_MS, () => setSaid((before) => before.filter((each) => each.id !== id)));
      },
    }),
    [client, live, clock, session, address],
  );
  useKeys(clock, {
    red: () => setRed({}),
    help: () => setHelp(true),
    theme: () => setTheme(nextTheme(theme)),
    go: (page) => {
      location.hash = pageAddress(page);
    },
  });
  const signOut = async (): Promise<void> => {
    const ask = () => client.order<SessionEnded>('DELETE', '/v1/session');
    let answer = await ask();
    // Another window has signed in anew: out of that one, then. The browser has only one.
    if ('problem' in answer && answer.problem.status === 403) answer = await ask();
    onOut('problem' in answer ? `Signing out failed: ${answer.problem.detail}.` : signedOutWords(answer.ok));
  };
  return (
    <ConsoleContext.Provider value={context}>
      <SaidContext.Provider value={said}>
        <Ticking clock={clock}>
          <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
            Skip to the page
          </a>
          <header class="top">
            <button class="menu quiet" aria-expanded={isMenu} aria-controls="pages" onClick={() => setMenu(!isMenu)} data-test="menu">
              ☰<span class="sr"> Pages</span>
            </button>
            <a class="brand" href={pageAddress('overview')}>
              Agent-Reach <span class="env">{session.env}</span>
            </a>
            <LiveWord state={liveState} onAgain={() => live.all()} />
            <span class="grow" />
            <button class="quiet" title="Dark or light (d)" data-test="theme" onClick={() => setTheme(nextTheme(theme))}>
              {theme}
            </button>
            <button class="quiet" title="Keys (?)" data-test="help" onClick={() => setHelp(true)}>
              ?<span class="sr"> Help</span>
            </button>
            <span class="who small" data-test="who" title={`Signed in until ${new Date(session.until_ms).toLocaleString()}`}>
              {session.name} <span class="muted">{session.role}</span>
            </span>
            <button class="quiet" data-test="sign-out" onClick={() => void signOut()}>
              Sign out
            </button>
            <RedButton onOpen={() => setRed({})} />
          </header>
          <div class="body">
            <nav id="pages" class={isMenu ? 'side open' : 'side'} aria-label="Pages">
              {PAGES.map((page) => (
                <a key={page} href={pageAddress(page)} aria-current={page === address.page ? 'page' : undefined} data-test={`nav-${page}`}>
                  {LABELS[page]}
                  {page === 'alerts' && <Firing />}
                </a>
              ))}
              <div class="side-foot">
                <button onClick={() => setTheme(nextTheme(theme))}>Theme: {theme}</button>
                <button onClick={() => setHelp(true)}>Keys</button>
                <button onClick={() => void signOut()}>Sign out {session.name}</button>
              </div>
            </nav>
            <main id="main" ref={main} tabIndex={-1}>
              <Guarded key={`${address.page} ${address.id}`}>
                <Page address={address} />
              </Guarded>
            </main>
          </div>
          {red !== null && (
            <Guarded>
              <RedPanel preset={red} onClose={() => setRed(null)} />
            </Guarded>
          )}
          {isHelp && <Help onClose={() => setHelp(false)} />}
          <Said of={null} />
        </Ticking>
      </SaidContext.Provider>
    </ConsoleContext.Provider>
  );
}

function signedOutWords({ on_all_replicas: isEverywhere, why }: SessionEnded): string {
  return isEverywhere
    ? 'You are signed out.'
    : `You are signed out here; the other replicas have not been told yet (${why ?? 'no answer'}).`;
}

/** What all windows of this browser hear of changes. */
function openStream(clock: Clock): Source {
  const open = (): Source => new EventSource('/v1/live');
  if (typeof BroadcastChannel === 'undefined') return open();
  const [number = 0] = crypto.getRandomValues(new Uint32Array(1));
  return new SharedSource({ clock, open, channel: new BroadcastChannel('reach-live'), number: number / 2 ** 32 });
}

/** Gives the time, once a second while somebody looks. */
function Ticking({ clock, children }: { readonly clock: Clock; readonly children: ComponentChildren }) {
  const [now, setNow] = useState(() => clock.wallMs());
  useEffect(() => {
    let isOver = false;
    const tick = (): void => {
      if (isOver) return;
      if (!document.hidden) setNow(clock.wallMs());
      clock.after(1_000, tick);
    };
    clock.after(1_000, tick);
    return () => {
      isOver = true;
    };
  }, [clock]);
  return <NowContext.Provider value={now}>{children}</NowContext.Provider>;
}

/** A fault in one part leaves the others, and the red button, as they are. */
function Guarded({ children }: { readonly children: ComponentChildren }) {
  const [fault, again] = useErrorBoundary();
  if (fault === undefined) return <>{children}</>;
  return (
    <div class="box bad" role="alert" data-test="page-fault">
      This part of the page has a fault: {fault instanceof Error ? fault.message : String(fault)}. All others work.{' '}
      <button onClick={again}>Try again</button>
    </div>
  );
}

function Page({ address }: { readonly address: Address }) {
  switch (address.item) {
    case 'capability':
      return <CapabilityPage key={address.id} name={address.id} />;
    case 'agent':
      return <AgentPage key={address.id} id={address.id} />;
    case 'trace':
      return <TracePage key={address.id} id={address.id} />;
    case 'task':
      return <TaskPage key={address.id} id={address.id} />;
    case null:
      return <List page={address.page} />;
  }
}

function List({ page }: { readonly page: PageName }) {
  switch (page) {
    case 'overview':
      return <OverviewPage />;
    case 'topology':
      return <TopologyPage />;
    case 'capabilities':
      return <CapabilitiesPage />;
    case 'traces':
      return <TracesPage />;
    case 'messages':
      return <MessagesPage />;
    case 'rules':
      return <RulesPage />;
    case 'quotas':
      return <QuotasPage />;
    case 'shifts':
      return <ShiftsPage />;
    case 'agents':
      return <AgentsPage />;
    case 'fleet':
      return <FleetPage />;
    case 'alerts':
      return <AlertsPage />;
    case 'audit':
      return <AuditPage />;
  }
}

const place = document.getElementById('app');
if (place !== null) render(<Root client={new Client((path, init) => fetch(path, init), realClock)} clock={realClock} />, place);
