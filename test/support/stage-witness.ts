/** Hears of the stages of messages, as the spans of a sidecar would. */
import { SeededRandom } from '../../base/random.ts';
import type { Span, SpanStage } from '../../proto/wire/spans.ts';
import { newSpanId } from '../../proto/wire/trace-context.ts';
import type { StageSpans } from '../../sidecar/call/stage-spans.ts';

export class StageWitness implements StageSpans {
  readonly told: Span[] = [];
  readonly retold: Span[] = [];
  /** Of those told, whether their trace was picked. */
  readonly picked: boolean[] = [];
  picksAll = true;
  readonly #random = new SeededRandom(11);

  newId(): string {
    return newSpanId(this.#random);
  }

  picks(): boolean {
    return this.picksAll;
  }

  wallAt(clockNow: number): number {
    return 1_700_000_000_000 + clockNow;
  }

  tell(span: Span, isPicked: boolean): void {
    this.told.push(span);
    this.picked.push(isPicked);
  }

  retell(span: Span): void {
    this.retold.push(span);
  }

  of(stage: SpanStage): Span[] {
    return this.told.filter((span) => span.stage === stage);
  }
}
