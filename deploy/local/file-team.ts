/** The team standalone: all sidecars read one table file. Who joins is written into it, and so is every other change. */
import { join } from 'node:path';
import { type Place, put, settingsText, TABLE_FILE, tableText } from './files.ts';
import type { Member } from './roster.ts';
import { placeOf, reservePorts, type Seat, type Split, Team } from './team.ts';

const TABLE_MS = 10_000;

export class FileTeam extends Team {
  readonly #listed: Place[] = [];
  readonly #splits = new Map<string, Split>();

  get tableFile(): string {
    return join(this.folder, TABLE_FILE);
  }

  override async start(members: readonly Member[]): Promise<void> {
    const ports = await Promise.all(members.map(reservePorts));
    const places = members.map((member, i) => placeOf(member, ports[i] as (typeof ports)[number]));
    this.#listed.push(...places);
    this.#writeTable();
    await Promise.all(places.map((place, i) => this.launch(place, ports[i] as (typeof ports)[number])));
  }

  override async join(member: Member, split?: Split): Promise<string> {
    const ports = await reservePorts();
    const place = placeOf(member, ports);
    await this.launch(place, ports);
    this.#listed.push(place);
    if (split !== undefined) this.#splits.set(split.capability, split);
    await this.#edit();
    return `its processes were started, the table file edited${split === undefined ? '' : ', its share in the same edit'}, every sidecar has it in force`;
  }

  override async divide(split: Split): Promise<string> {
    this.#splits.set(split.capability, split);
    await this.#edit();
    return 'by one edit of the table file';
  }

  protected override settingsOf(place: Place): string {
    return settingsText(place, this.meshToken, { table: `./${TABLE_FILE}` });
  }

  /** Resolves when every sidecar has the new text in force. */
  async #edit(): Promise<void> {
    const seats = this.seats().filter((seat) => !seat.sidecar.ended);
    const before = await Promise.all(seats.map(async (seat) => (await this.standing(seat.place.member)).table.version));
    this.#writeTable();
    await Promise.all(seats.map((seat, i) => this.#hasNewTable(seat, before[i] as number)));
  }

  async #hasNewTable(seat: Seat, before: number): Promise<void> {
    await this.until(`${seat.sidecar.name} to take the new table`, TABLE_MS, async () => {
      const { table } = await this.standing(seat.place.member);
      if (table.stale_because !== null)
        throw new Error(`${seat.sidecar.name} refused the table: ${table.problems.map((problem) => problem.message).join('; ')}`);
      return table.version > before;
    });
  }

  #writeTable(): void {
    const policies = [...this.#splits.values()].map(({ capability, version, share }) => ({ capability, canary: { [version]: share } }));
    put(this.tableFile, tableText(this.#listed, policies));
  }
}
