/** The agent's own refusal or failure: its caller gets it as 6001 with this status and data, passed through as it is. */
export class AgentError extends Error {
  /** 400 … 599; below 500 the caller is at fault, and it does not count against the agent. */
  readonly status: number;
  readonly data: unknown;

  constructor(status: number, data: unknown) {
    super(wordsOf(data));
    if (!Number.isInteger(status) || status < 400 || status > 599)
      throw new TypeError(`the status of an error is 400 … 599, not ${status}`);
    this.name = 'AgentError';
    this.status = status;
    this.data = data;
  }
}

/** What JSON cannot say is told as far as text can, and does not hide the error. */
function wordsOf(data: unknown): string {
  if (typeof data === 'string') return data;
  try {
    return JSON.stringify(data);
  } catch {
    return String(data);
  }
}
