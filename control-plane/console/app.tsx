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
 *   red-action (a select), red-kind (a select), red-name, red-to, red-reason, red-for, red-words, red-next, red-typed (only for
 *   what covers many), confirm, red-progress (data-in-force, data-of)
 *   override-row (data-id; inside: lift, then confirm)
 *   confirm, cancel: in every dialog that asks a second time · help, theme, search
 *   page-problem (an error of the API, with its words), empty, stale
 */
