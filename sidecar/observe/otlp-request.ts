/** One request to a collector: spans of this sidecar in a buffer that is used again for the next one. */
import { BackwardWriter } from '../../base/backward-writer.ts';
import { attribute, type OtlpSpans } from './otlp-span.ts';
import type { SpanRecord } from './span-record.ts';

/** Field numbers of opentelemetry/proto/collector/trace/v1 and what it holds. */
const Request = { resourceSpans: 1 };
const ResourceSpans = { resource: 1, scopeSpans: 2, schemaUrl: 3 };
const Resource = { attributes: 1 };
const ScopeSpans = { scope: 1, spans: 2 };
const Scope = { name: 1, version: 2 };
const SCHEMA_URL = 'https://opentelemetry.io/schemas/1.30.0';
const SCOPE = 'agent-reach';
const FIRST_BYTES = 65_536;

/** Who tells: attributes by the semantic conventions of resources. */
export interface OtlpResource {
  readonly attributes: Readonly<Record<string, string>>;
  readonly version: string;
}

export class OtlpRequest {
  spans = 0;
  readonly #writer = new BackwardWriter(FIRST_BYTES);

  get bytes(): number {
    return this.#writer.length;
  }

  add(spans: OtlpSpans, record: SpanRecord): void {
    spans.write(this.#writer, ScopeSpans.spans, record);
    this.spans++;
  }

  /** The whole body: good until `clear`. */
  close(resource: OtlpResource): Buffer {
    const to = this.#writer;
    const scope = to.length;
    to.text(Scope.version, resource.version);
    to.text(Scope.name, SCOPE);
    to.close(ScopeSpans.scope, scope);
    to.close(ResourceSpans.scopeSpans, 0);
    // What is written later stands earlier: the resource comes before its spans.
    const began = to.length;
    for (const key of Object.keys(resource.attributes).reverse())
      attribute(to, Resource.attributes, key, resource.attributes[key] as string);
    to.close(ResourceSpans.resource, began);
    to.text(ResourceSpans.schemaUrl, SCHEMA_URL);
    to.close(Request.resourceSpans, 0);
    return to.bytes();
  }

  clear(): void {
    this.spans = 0;
    this.#writer.clear();
  }
}
