/** Table of numbers by column: bounded, and downsampled evenly when full. */

import { type NonFinite, nonFinite } from '../formats';

/** Most rows. A full table joins neighboring rows, which then stand for several steps. */
export const MOST_ROWS = 1200;

/** Columns whose joined rows keep the last value; others keep the mean. */
const KEEP_LAST = new Set(['time_s', 'step', 'tokens']);

/** Number of breaks kept, the newest. */
const MOST_BREAKS = 1000;

type Column = ReadonlyArray<number | NonFinite | null>;

/** A value that is NaN or infinite. */
export interface IBreak<Name extends string = string> {
  name: Name;
  time_s: number;
  value: NonFinite;
}

/** Rows of numbers; NaN means unknown. Values that are NaN or infinite are in `breaks`. */
export class Table<Name extends string> {
  constructor(
    readonly names: ReadonlyArray<Name>,
    readonly mostRows = MOST_ROWS
  ) {
    for (const name of names) {
      this.columns.set(name, new Float64Array(64));
    }
  }

  /** Number of rows. */
  length = 0;

  /** Values that are NaN or infinite, oldest first; never joined. */
  breaks: ReadonlyArray<IBreak<Name>> = [];

  /** A view of the column, valid until rows are added. */
  column(name: Name): Float64Array {
    return this.columns.get(name)!.subarray(0, this.length);
  }

  last(name: Name): number {
    return this.length ? this.columns.get(name)![this.length - 1] : NaN;
  }

  clear(): void {
    this.length = 0;
    this.breaks = [];
    this.size = 1;
    this.open = 0;
  }

  /** Append rows; missing columns become NaN. */
  append(rows: Partial<Record<Name, Column>>): void {
    const count = (rows['time_s' as Name] ?? []).length;
    for (let row = 0; row < count; row++) {
      this.appendRow(name => {
        const value = rows[name]?.[row];
        return typeof value === 'number' ? value : NaN;
      });
    }
    const found = this.names.flatMap(name => breaksOf(name, rows));
    if (found.length) {
      this.breaks = [...this.breaks, ...found].slice(-MOST_BREAKS);
    }
  }

  private appendRow(value: (name: Name) => number): void {
    // Join into the last row until it stands for as many steps as the others.
    if (this.open > 0 && this.open < this.size) {
      this.joinInto(this.length - 1, value);
      this.open += 1;
      return;
    }
    if (this.length >= this.mostRows) {
      this.halve();
    }
    this.reserve(this.length + 1);
    for (const name of this.names) {
      this.columns.get(name)![this.length] = value(name);
    }
    this.length += 1;
    this.open = 1;
  }

  private joinInto(at: number, value: (name: Name) => number): void {
    for (const name of this.names) {
      const column = this.columns.get(name)!;
      column[at] = joined(name, column[at], value(name), this.open);
    }
  }

  private halve(): void {
    const half = Math.floor(this.length / 2);
    for (const name of this.names) {
      const column = this.columns.get(name)!;
      for (let row = 0; row < half; row++) {
        const [a, b] = [column[2 * row], column[2 * row + 1]];
        column[row] = joined(name, a, b, 1);
      }
    }
    this.length = half;
    this.size *= 2;
    this.open = this.size;
  }

  private reserve(rows: number): void {
    for (const [name, column] of this.columns) {
      if (rows > column.length) {
        const longer = new Float64Array(
          Math.min(this.mostRows, 2 * column.length)
        );
        longer.set(column);
        this.columns.set(name, longer);
      }
    }
  }

  private columns = new Map<Name, Float64Array>();
  private size = 1;
  private open = 0;
}

/** The value of a row that stood for `weight` steps, and now for one more. */
function joined(
  name: string,
  old: number,
  next: number,
  weight: number
): number {
  if (KEEP_LAST.has(name) || Number.isNaN(old)) {
    return next;
  }
  return Number.isNaN(next) ? old : old + (next - old) / (weight + 1);
}

function breaksOf<Name extends string>(
  name: Name,
  rows: Partial<Record<string, Column>>
): IBreak<Name>[] {
  const times = rows['time_s'] ?? [];
  return (rows[name] ?? []).flatMap((value, row) => {
    const time = times[row];
    return nonFinite(value) && typeof time === 'number'
      ? [{ name, time_s: time, value }]
      : [];
  });
}
