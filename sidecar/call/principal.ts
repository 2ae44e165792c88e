/** Who is calling: one per token or connection, never per process. Made by `identify`, trusted by everything after it. */
export class Principal {
  /** `team.role.id`. */
  readonly agent: string;
  readonly team: string;
  readonly role: string;
  readonly id: string;
  /** The sidecar that vouches for the agent; null when it is this one. */
  readonly via: string | null;

  constructor(agent: string, via: string | null = null) {
    const [team = '', role = '', ...rest] = agent.split('.');
    this.agent = agent;
    this.team = team;
    this.role = role;
    this.id = rest.join('.');
    this.via = via;
  }
}
