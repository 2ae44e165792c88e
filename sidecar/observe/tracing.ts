/** Traces of a sidecar, put together: what is made and told, the control plane (when there is one), a collector (when one is set). */
import type { Clock } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import type { Random } from '../../base/random.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import type { TraceSettings } from '../traces-config.ts';
import { OtlpExport, otlpPost } from './otlp-export.ts';
import { Spans } from './spans.ts';
import { SpansPublisher } from './spans-publisher.ts';

export interface TracingParts {
  readonly clock: Clock;
  readonly random: Random;
  readonly settings: TraceSettings;
  readonly sidecar: string;
  /** Names this run of the process. */
  readonly instance: string;
  readonly version: string;
  /** `deployment.environment.name`; null = standalone. */
  readonly env: string | null;
  readonly warn: (words: string) => void;
}

/** What is sent last has so long. */
const LAST_MS = 1_000;

export class Tracing {
  readonly spans: Spans;
  readonly #parts: TracingParts;
  readonly #otlp: OtlpExport | null;
  readonly #disconnect: () => void;
  #publisher: SpansPublisher | null = null;

  static async start(parts: TracingParts): Promise<Tracing> {
    const { settings, clock, random, warn, sidecar, instance, version, env } = parts;
    if (settings.otlp === null) return new Tracing(parts, null, () => undefined);
    const { post, close } = await otlpPost(settings.otlp.url, clock);
    const attributes = {
      'service.name': settings.otlp.serviceName ?? sidecar,
      'service.namespace': 'agent-reach',
      'service.instance.id': instance,
      'service.version': version,
      'telemetry.sdk.name': 'agent-reach',
      'telemetry.sdk.language': 'nodejs',
      'telemetry.sdk.version': version,
      ...(env === null ? null : { 'deployment.environment.name': env }),
      'reach.sidecar': sidecar,
    };
    const otlp = new OtlpExport({ clock, random, settings: settings.otlp, resource: { attributes, version }, post, warn });
    return new Tracing(parts, otlp, close);
  }

  private constructor(parts: TracingParts, otlp: OtlpExport | null, disconnect: () => void) {
    this.#parts = parts;
    this.#otlp = otlp;
    this.#disconnect = disconnect;
    this.spans = new Spans(parts.clock, parts.random, parts.settings);
    if (otlp !== null) this.spans.sinks.push(otlp);
  }

  /** From now on the control plane is told, and other sidecars are heard. */
  join(bus: Bus, subjects: Subjects): void {
    const { clock, sidecar, instance } = this.#parts;
    const publisher = new SpansPublisher({
      bus,
      subjects,
      clock,
      sidecar,
      instance,
      dropped: () => this.spans.counts.dropped,
      keep: (traces) => this.spans.keep(traces),
      show: (traces) => this.spans.show(traces),
      tellOwed: () => this.spans.tellOwed(),
    });
    this.#publisher = publisher;
    this.spans.controlPlane = publisher;
    this.spans.onNamed = (traces) => publisher.name(traces);
  }

  /** For `reach_spans_total`, by outcome. */
  get figures(): Readonly<Record<string, number>> {
    const { made, dropped } = this.spans.counts;
    const figures: Record<string, number> = {
      made,
      told: this.#publisher?.published ?? 0,
      dropped: dropped + (this.#publisher?.dropped ?? 0),
    };
    if (this.#otlp === null) return figures;
    const { exported, rejected, dropped: lost, retries } = this.#otlp.counts;
    return { ...figures, exported, export_rejected: rejected, export_dropped: lost, export_retries: retries };
  }

  /** Tells what is at hand; the bus must still be there. */
  async stop(): Promise<void> {
    this.spans.stop();
    this.#publisher?.close();
    await this.#otlp?.stop(LAST_MS);
    this.#disconnect();
  }
}
