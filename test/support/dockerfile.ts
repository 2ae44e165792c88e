/** A Dockerfile read as its builder reads it: instructions in order, stages by number and name. Enough of the language for our own file. */
export interface Instruction {
  /** Upper case. */
  readonly name: string;
  readonly text: string;
  /** The number of its stage; -1 = before the first. */
  readonly stage: number;
}

export class Dockerfile {
  readonly instructions: readonly Instruction[];
  /** What each stage is made from, arguments filled in, and its own name ('' = none). */
  readonly stages: readonly { readonly from: string; readonly name: string }[];

  constructor(text: string) {
    const args = new Map<string, string>();
    const instructions: Instruction[] = [];
    const stages: { from: string; name: string }[] = [];
    const lines = text
      .split('\n')
      .filter((line) => !line.startsWith('#'))
      .join('\n')
      .replaceAll(/\\\n\s*/g, ' ')
      .split('\n');
    for (const line of lines) {
      const match = /^([A-Z]+)\s+(.*)$/.exec(line.trim());
      if (match === null) {
        if (line.trim() !== '') throw new Error(`no instruction: ${line}`);
        continue;
      }
      const [, name, rest] = match as unknown as [string, string, string];
      if (name === 'ARG' && rest.includes('=')) args.set(rest.slice(0, rest.indexOf('=')), rest.slice(rest.indexOf('=') + 1));
      if (name === 'FROM') {
        const [from, , as = ''] = rest.split(/\s+/);
        stages.push({ from: (from as string).replaceAll(/\$\{(\w+)\}/g, (_all, key: string) => args.get(key) ?? ''), name: as });
      }
      instructions.push({ name, text: rest, stage: stages.length - 1 });
    }
    this.instructions = instructions;
    this.stages = stages;
  }

  /** Of the last stage, which is the image. */
  last(name: string): readonly string[] {
    return this.instructions.filter((each) => each.stage === this.stages.length - 1 && each.name === name).map(({ text }) => text);
  }

  /** What is copied in a stage: from which stage ('' = the folder that is built), what, where to. */
  copies(stage = this.stages.length - 1): { readonly from: string; readonly sources: readonly string[]; readonly target: string }[] {
    return this.instructions
      .filter((each) => each.stage === stage && each.name === 'COPY')
      .map(({ text }) => {
        const words = text.split(/\s+/);
        const from = words[0]?.startsWith('--from=') === true ? (words.shift() as string).slice('--from='.length) : '';
        return { from, sources: words.slice(0, -1), target: words.at(-1) as string };
      });
  }
}
