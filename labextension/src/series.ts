/** A job's rows on the page: appended in place, bounded, and thinned evenly when there are too many. */

import type {
  EvaluationColumns,
  JobColumns,
  JobSeries,
  LinkColumns,
  RankColumns,
  WrittenText
} from './schema';
import type { ISeriesSink } from './tokens';

/** Rows per table. When it is full, neighbors are joined: all rows then stand for more steps. */
export const MOST_ROWS = 1200;

/** Of what the model wrote: the newest. */
export const MOST_TEXTS = 50;

/** These take the last of the joined values, all others the mean. */
const KEEP_LAST = new Set(['time_s', 'step']);

type Column = ReadonlyArray<number | null>;

export const RANK_COLUMNS = [
  'time_s',
  'step',
  'step_s',
  'tokens_per_s',
  'pace_tokens_per_s',
  'mfu',
  'compute',
  'send',
  'wait',
  'bubble',
  'memory_bytes'
] as const;
export const JOB_COLUMNS = [
  'time_s',
  'step',
  'tokens_per_s',
  'mfu',
  'bubble',
  'loss'
] as const;
export const EVALUATION_COLUMNS = ['time_s', 'step', 'loss'] as const;
export const LINK_COLUMNS = [
  'time_s',
  'sent',
  'received',
  'own_sent',
  'own_received'
] as const;

/** Rows of named numbers; NaN = not known. */
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

  /** A view on the column: valid until rows are added. */
  column(name: Name): Float64Array {
    return this.columns.get(name)!.subarray(0, this.length);
  }

  last(name: Name): number {
    return this.length ? this.columns.get(name)![this.length - 1] : NaN;
  }

  /** Median of the known ones among the last rows; NaN if there are none. */
  recent(name: Name, rows = 10): number {
    const known = [...this.column(name).subarray(-rows)].filter(
      value => !Number.isNaN(value)
    );
    known.sort((a, b) => a - b);
    return known.length ? known[Math.floor(known.length / 2)] : NaN;
  }

  clear(): void {
    this.length = 0;
    this.size = 1;
    this.open = 0;
  }

  /** Columns that are missing, as those that nobody fills are, hold NaN. */
  append(rows: Partial<Record<Name, Column>>): void {
    const count = (rows['time_s' as Name] ?? []).length;
    for (let row = 0; row < count; row++) {
      this.appendRow(name => {
        const value = rows[name]?.[row];
        return value === null || value === undefined ? NaN : value;
      });
    }
  }

  private appendRow(value: (name: Name) => number): void {
    // An open row takes as many as the ones before it stand for.
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
      const next = value(name);
      if (KEEP_LAST.has(name) || Number.isNaN(column[at])) {
        column[at] = next;
      } else if (!Number.isNaN(next)) {
        column[at] += (next - column[at]) / (this.open + 1);
      }
    }
  }

  private halve(): void {
    const half = Math.floor(this.length / 2);
    for (const name of this.names) {
      const column = this.columns.get(name)!;
      for (let row = 0; row < half; row++) {
        const [a, b] = [column[2 * row], column[2 * row + 1]];
        if (KEEP_LAST.has(name) || Number.isNaN(a)) {
          column[row] = b;
        } else {
          column[row] = Number.isNaN(b) ? a : (a + b) / 2;
        }
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

export type RankTable = Table<(typeof RANK_COLUMNS)[number]>;
export type JobTable = Table<(typeof JOB_COLUMNS)[number]>;
export type EvaluationTable = Table<(typeof EVALUATION_COLUMNS)[number]>;
export type LinkTable = Table<(typeof LINK_COLUMNS)[number]>;

export interface IRankRows {
  who: RankColumns;
  table: RankTable;
}

export interface ILinkRows {
  link: LinkColumns;
  table: LinkTable;
}

/** All rows of one job, as far as the page has them. */
export class SeriesStore implements ISeriesSink {
  constructor(private onChange: () => void = () => undefined) {}

  stream = '';
  seq = 0;
  attempt = 0;
  readonly ranks = new Map<number, IRankRows>();
  readonly links = new Map<string, ILinkRows>();
  readonly job: JobTable = new Table(JOB_COLUMNS);
  readonly evaluation: EvaluationTable = new Table(EVALUATION_COLUMNS);
  /** What the model wrote, oldest first. */
  texts: ReadonlyArray<WrittenText> = [];

  take(series: JobSeries): void {
    const isWhole = series.since === 0 || series.stream !== this.stream;
    if (!isWhole && series.since !== this.seq) {
      return; // had before, or meant for another view
    }
    if (isWhole) {
      this.clear();
    }
    this.stream = series.stream;
    this.seq = series.seq;
    this.attempt = series.attempt;
    for (const rank of series.ranks ?? []) {
      let rows = this.ranks.get(rank.rank);
      if (!rows) {
        rows = { who: rank, table: new Table(RANK_COLUMNS) };
        this.ranks.set(rank.rank, rows);
      }
      rows.who = identity(rank);
      rows.table.append(rank);
    }
    this.job.append((series.job ?? {}) as JobColumns);
    this.evaluation.append((series.evaluation ?? {}) as EvaluationColumns);
    this.texts = [...this.texts, ...(series.texts ?? [])].slice(-MOST_TEXTS);
    for (const link of series.links ?? []) {
      let rows = this.links.get(link.node);
      if (!rows) {
        rows = { link, table: new Table(LINK_COLUMNS) };
        this.links.set(link.node, rows);
      }
      rows.link = linkIdentity(link);
      rows.table.append(link);
    }
    this.onChange();
  }

  private clear(): void {
    this.ranks.clear();
    this.links.clear();
    this.job.clear();
    this.evaluation.clear();
    this.texts = [];
  }

  /** Ranks in their order. */
  get sorted(): IRankRows[] {
    return [...this.ranks.values()].sort((a, b) => a.who.rank - b.who.rank);
  }

  get hasSteps(): boolean {
    return [...this.ranks.values()].some(rows => rows.table.length > 0);
  }

  /** Nothing at all: what was evaluated or written before the first step counts, too. */
  get isEmpty(): boolean {
    return !(this.hasSteps || this.evaluation.length || this.texts.length);
  }
}

/** Without the rows: those are in the table. */
function identity(rank: RankColumns): RankColumns {
  const { rank: number, node, local_rank, stages, layers, device } = rank;
  return { rank: number, node, local_rank, stages, layers, device };
}

function linkIdentity(link: LinkColumns): LinkColumns {
  const { node, interface: name, basis, peers } = link;
  const { capacity_bytes_per_s, capacity_source } = link;
  return {
    node,
    interface: name,
    basis,
    peers,
    capacity_bytes_per_s,
    capacity_source
  };
}

export interface IBand {
  x: Float64Array;
  low: Float64Array;
  middle: Float64Array;
  high: Float64Array;
}

/** Lowest, median and highest of several lines on the time axis of the longest one. */
export function band(
  lines: ReadonlyArray<{ x: Float64Array; y: Float64Array }>
): IBand {
  const longest = lines.reduce((a, b) => (b.x.length > a.x.length ? b : a));
  const { x } = longest;
  const at = lines.map(() => 0);
  const [low, middle, high] = [0, 1, 2].map(() => new Float64Array(x.length));
  for (let row = 0; row < x.length; row++) {
    const values: number[] = [];
    lines.forEach((line, i) => {
      while (at[i] + 1 < line.x.length && line.x[at[i] + 1] <= x[row]) {
        at[i] += 1;
      }
      const value = line.y[at[i]];
      if (line.x.length && line.x[at[i]] <= x[row] && !Number.isNaN(value)) {
        values.push(value);
      }
    });
    values.sort((a, b) => a - b);
    low[row] = values.length ? values[0] : NaN;
    middle[row] = values.length ? values[values.length >> 1] : NaN;
    high[row] = values.length ? values[values.length - 1] : NaN;
  }
  return { x, low, middle, high };
}
