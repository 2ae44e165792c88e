/**
 * grpc.health.v1.Health: whether this sidecar takes calls, for probes and load balancers that speak gRPC. The answer is
 * that of `/v1/ready`; agents behind it are none of its business.
 */
import type { Timer } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import { HealthRequest, HealthResponse } from '../../proto/wire/reach-messages.ts';
import type { Exchange } from './grpc-exchange.ts';
import { Status } from './grpc-status.ts';
import type { Stoppable } from './line.ts';

const Serving = { serving: 1, not_serving: 2, service_unknown: 3 } as const;
/** Readiness changes once or twice in a life. */
const LOOK_EVERY_MS = 1_000;

/** @param services names that may be asked for beside the empty one. */
export function check(exchange: Exchange, message: Buffer, services: ReadonlySet<string>): void {
  const service = HealthRequest.read(message)?.service ?? null;
  if (service === null) exchange.refuse(Code.invalid_request, 'the message is not a well-formed grpc.health.v1.HealthCheckRequest');
  else if (!isKnown(service, services))
    exchange.refuse(Code.invalid_request, `there is no service ${JSON.stringify(service.slice(0, 100))} here`, 0, Status.not_found);
  else exchange.finish(HealthResponse.write({ status: standing(exchange) }));
}

/** A status now, and one for each change. */
export function watch(exchange: Exchange, message: Buffer, services: ReadonlySet<string>): void {
  const service = HealthRequest.read(message)?.service ?? null;
  if (service === null) exchange.refuse(Code.invalid_request, 'the message is not a well-formed grpc.health.v1.HealthCheckRequest');
  else if (!isKnown(service, services)) exchange.send(HealthResponse.write({ status: Serving.service_unknown }));
  else new Watch(exchange).look();
}

class Watch implements Stoppable {
  readonly #exchange: Exchange;
  #last = -1;
  #timer: Timer | null = null;

  constructor(exchange: Exchange) {
    this.#exchange = exchange;
    exchange.work = this;
  }

  look(): void {
    if (this.#exchange.isOver) return;
    const now = standing(this.#exchange);
    if (now !== this.#last) this.#exchange.send(HealthResponse.write({ status: now }));
    this.#last = now;
    this.#timer = this.#exchange.front.engine.clock.after(LOOK_EVERY_MS, () => this.look());
  }

  cancel(): void {
    this.#timer?.cancel();
  }
}

function standing(exchange: Exchange): number {
  return exchange.front.ready ? Serving.serving : Serving.not_serving;
}

function isKnown(service: string, services: ReadonlySet<string>): boolean {
  return service === '' || services.has(service);
}
