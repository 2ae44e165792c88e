/**
 * The sidecar's own file where there is a registry: what stands in it is registered rather than installed. A bad edit
 * changes nothing: the agents in force stay announced, and the refusal is kept for health.
 */
import type { Problem, TableDocument } from '../../proto/language/types.ts';
import type { Announcer } from './announce.ts';
import type { TableSink } from './file.ts';

export class OwnFile implements TableSink {
  readonly #announcer: Announcer;
  #version = 0;
  staleBecause = '';
  problems: readonly Problem[] = [];

  constructor(announcer: Announcer) {
    this.#announcer = announcer;
  }

  get ready(): boolean {
    return this.#version > 0;
  }

  install(document: TableDocument): { readonly version: number } {
    this.#announcer.setFile(document);
    this.#version++;
    this.staleBecause = '';
    this.problems = [];
    return { version: this.#version };
  }

  refuse(problems: readonly Problem[], why: string): void {
    this.problems = problems;
    this.staleBecause = why;
  }
}
