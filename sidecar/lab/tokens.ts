/** What a caller shows in a scenario: good for its run only. */
export function tokenOf(agent: string): string {
  return `lab-${agent}`;
}
