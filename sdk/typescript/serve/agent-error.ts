/** The agent's own refusal or failure: its caller gets it as 6001 with this status and data, passed through as it is. */
export class AgentError extends Error {
  /** 400 … 599; below 500 the caller is at fault, and it does not count against the agent. */
  readonly status: number;
  readonly data: unknown;

  constructor(status: number, data: unknown) {
    super(typeof data === 'string' ? data : JSON.stringify(data));
    if (!Number.isInteger(status) || status < 400 || status > 599)
      throw new TypeError(`the status of an error is 400 … 599, not ${status}`);
    this.name = 'AgentError';
    this.status = status;
    this.data = data;
  }
}
