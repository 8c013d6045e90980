/** The rows of one job on the page, as the Jupyter server sends them. */

import type {
  EvaluationColumns,
  JobColumns,
  JobSeries,
  LinkColumns,
  RankColumns,
  WrittenText
} from '../schema';
import type { ISeriesSink } from '../tokens';
import { Table } from './table';

/** Most texts of the model that are kept: the newest. */
export const MOST_TEXTS = 50;

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

export type RankTable = Table<(typeof RANK_COLUMNS)[number]>;
export type JobTable = Table<(typeof JOB_COLUMNS)[number]>;
export type EvaluationTable = Table<(typeof EVALUATION_COLUMNS)[number]>;
export type LinkTable = Table<(typeof LINK_COLUMNS)[number]>;

const RANK_FIGURES = [
  'tokens_per_s',
  'pace_tokens_per_s',
  'mfu',
  'compute',
  'send',
  'wait',
  'bubble',
  'memory_bytes'
] as const;
const LINK_FIGURES = ['sent', 'received', 'own_sent', 'own_received'] as const;

/** Figures over the recent steps; NaN = not known. */
export type RankNow = Record<(typeof RANK_FIGURES)[number], number>;
export type LinkNow = Record<(typeof LINK_FIGURES)[number], number>;

export interface IRankRows {
  who: RankColumns;
  now: RankNow;
  table: RankTable;
}

export interface ILinkRows {
  link: LinkColumns;
  now: LinkNow;
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
        const table: RankTable = new Table(RANK_COLUMNS);
        rows = { who: rank, now: recent(table, RANK_FIGURES), table };
        this.ranks.set(rank.rank, rows);
      }
      rows.who = identity(rank);
      rows.table.append(rank);
      rows.now = recent(rows.table, RANK_FIGURES);
    }
    this.job.append((series.job ?? {}) as JobColumns);
    this.evaluation.append((series.evaluation ?? {}) as EvaluationColumns);
    this.texts = [...this.texts, ...(series.texts ?? [])].slice(-MOST_TEXTS);
    for (const link of series.links ?? []) {
      let rows = this.links.get(link.node);
      if (!rows) {
        const table: LinkTable = new Table(LINK_COLUMNS);
        rows = { link, now: recent(table, LINK_FIGURES), table };
        this.links.set(link.node, rows);
      }
      rows.link = linkIdentity(link);
      rows.table.append(link);
      rows.now = recent(rows.table, LINK_FIGURES);
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

  /** Whether there is nothing at all, not even an evaluation or a text from before the first step. */
  get isEmpty(): boolean {
    return !(this.hasSteps || this.evaluation.length || this.texts.length);
  }
}

/** Who a rank is, without its rows: those are in the table. */
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

function recent<Name extends string>(
  table: Table<Name>,
  names: ReadonlyArray<Name>
): Record<Name, number> {
  return Object.fromEntries(
    names.map(name => [name, table.recent(name)])
  ) as Record<Name, number>;
}
