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
