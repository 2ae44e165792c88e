/** How figures are said on the page: short, with their unit, and the same everywhere. */

const MINUTE_MS = 60_000;

/** Of something that has none. */
export const NONE = '–';

/** `0.4 ms`, `38 ms`, `1.25 s`, `2 m 5 s`. */
export function duration(ms: number | null): string {
  if (ms === null || !Number.isFinite(ms)) return NONE;
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms === 0) return '0 ms';
  if (ms < 1) return `${Number(ms.toPrecision(2))} ms`;
  if (ms < 10) return `${Number(ms.toFixed(1))} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${Number((ms / 1_000).toFixed(2))} s`;
  if (ms < MINUTE_MS) return `${Number((ms / 1_000).toFixed(1))} s`;
  return span(ms);
}

/** Of long times, in whole seconds and at most two units: `45 s`, `3 m 20 s`, `2 h`, `5 d 3 h`. */
export function span(ms: number): string {
  if (!Number.isFinite(ms)) return NONE;
  const seconds = Math.max(0, Math.round(ms / 1_000));
  if (seconds < 60) return `${seconds} s`;
  const two = (large: number, unit: string, small: number, smallUnit: string): string =>
    small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${smallUnit}`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return two(minutes, 'm', minutes < 10 ? seconds % 60 : 0, 's');
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return two(hours, 'h', minutes % 60, 'm');
  return two(Math.floor(hours / 24), 'd', hours % 24, 'h');
}

/** `12 s ago`, `in 4 m`; `now` within a second. */
export function relative(atMs: number, nowMs: number): string {
  const ms = nowMs - atMs;
  if (Math.abs(ms) < 1_000) return 'now';
  return ms > 0 ? `${span(ms)} ago` : `in ${span(-ms)}`;
}

/** In the reader's zone, with it: `2026-05-01 12:00:00 +02:00`. */
export function absolute(atMs: number, zoneMinutes: number = -new Date(atMs).getTimezoneOffset()): string {
  const shifted = new Date(atMs + zoneMinutes * MINUTE_MS);
  if (Number.isNaN(shifted.getTime())) return NONE;
  const size = Math.abs(zoneMinutes);
  const zone = `${zoneMinutes < 0 ? '-' : '+'}${two(Math.floor(size / 60))}:${two(size % 60)}`;
  return `${shifted.toISOString().slice(0, 19).replace('T', ' ')} ${zone}`;
}

/** Only the time of day, of what is from today. */
export function clock(atMs: number, zoneMinutes: number = -new Date(atMs).getTimezoneOffset()): string {
  return absolute(atMs, zoneMinutes).slice(11, 19);
}

const two = (part: number): string => String(part).padStart(2, '0');

/** A share 0–1: `0 %`, `0.02 %`, `4.2 %`, `37 %`; never `0 %` or `100 %` of what is not. */
export function percent(share: number | null): string {
  if (share === null || !Number.isFinite(share)) return NONE;
  const value = share * 100;
  if (value === 0) return '0 %';
  if (value < 0.01) return '< 0.01 %';
  if (value < 1) return `${Number(value.toFixed(2))} %`;
  if (value < 10) return `${Number(value.toFixed(1))} %`;
  if (value < 100 && value > 99) return `${Math.floor(value * 10) / 10} %`;
  return `${Math.round(value)} %`;
}

/** `0.02/s`, `4.1/s`, `1,250/s`. */
export function rate(perSecond: number | null): string {
  if (perSecond === null || !Number.isFinite(perSecond)) return NONE;
  if (perSecond === 0) return '0/s';
  if (perSecond < 0.01) return '< 0.01/s';
  if (perSecond < 1) return `${Number(perSecond.toFixed(2))}/s`;
  if (perSecond < 100) return `${Number(perSecond.toFixed(1))}/s`;
  return `${count(Math.round(perSecond))}/s`;
}

/** `1,250`. */
export function count(value: number | null): string {
  if (value === null || !Number.isFinite(value)) return NONE;
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

/** `3 agents`, `1 agent`. */
export function many(value: number, one: string, more = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : more}`;
}

export function bytes(value: number): string {
  if (value < 1_024) return `${value} B`;
  if (value < 1_048_576) return `${Number((value / 1_024).toFixed(1))} KiB`;
  return `${Number((value / 1_048_576).toFixed(1))} MiB`;
}

/** The middle of what is too long for a line: both ends tell names apart. */
export function short(text: string, max: number): string {
  if (text.length <= max) return text;
  const tail = Math.floor((max - 1) / 2);
  return `${text.slice(0, max - 1 - tail)}…${text.slice(text.length - tail)}`;
}

/** A list in a sentence: `a, b and 3 more`. */
export function listed(names: readonly string[], max = 5): string {
  if (names.length === 0) return 'none';
  if (names.length <= max) return names.length === 1 ? (names[0] as string) : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
  return `${names.slice(0, max).join(', ')} and ${count(names.length - max)} more`;
}
