/** Route tables for the cases of the HTTP adapter: capabilities by name, each with its providers and whatever else it needs. */

export interface Offered {
  readonly name: string;
  /** Default `idempotent`. */
  readonly execution?: 'once' | 'idempotent' | 'keyed';
  /** Lines of the contract, without indentation: `timeout: 1s`. */
  readonly extra?: readonly string[];
  /** Addresses; the providers are called after the capability: `crm.order.query` is served by `crm.order-query.1`, `….2`. */
  readonly at: readonly string[];
  /** Lines of every provider, without indentation. */
  readonly providerExtra?: readonly string[];
}

/** YAML. `rest` is put behind it as it is. */
export function tableOf(offered: readonly Offered[], rest = ''): string {
  const lines = ['contracts:'];
  for (const { name, execution, extra } of offered) {
    lines.push(
      `  - name: ${name}`,
      '    version: "2.0.0"',
      '    acl: public',
      '    streaming: true',
      `    execution: ${execution ?? 'idempotent'}`,
    );
    for (const line of extra ?? []) lines.push(`    ${line}`);
  }
  lines.push('providers:');
  for (const { name, at, providerExtra } of offered) {
    at.forEach((address, i) => {
      lines.push(
        `  - agent_id: ${providerOf(name, i + 1)}`,
        `    offers: ["${name}@2.0.0"]`,
        `    endpoint: {type: http, address: "${address}"}`,
      );
      for (const line of providerExtra ?? []) lines.push(`    ${line}`);
    });
  }
  return `${lines.join('\n')}\n${rest}`;
}

export function providerOf(capability: string, number = 1): string {
  const [team, ...role] = capability.split('.');
  return `${team}.${role.join('-')}.${number}`;
}
