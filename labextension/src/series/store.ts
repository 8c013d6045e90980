/** Series store: a job's rows, as the Jupyter server sends them. */

import {
  type DataPreview,
  type EvaluationColumns,
  type JobColumns,
  type JobSeries,
  type JobSummary,
  type LinkSummary,
  MOST_TEXTS,
  type RankSummary,
  type WrittenText
} from '../schema';
import type { ISeriesSink } from '../tokens';
import { Table } from './table';

export const RANK_COLUMNS = [
  'time_s',
  'step',
  'step_s',
  'tokens_per_s',
  'pace_tokens_per_s',
  'mfu',
  'compute',
  'coding',
  'send',
  'wait',
  'schedule_bubble',
  'memory_bytes'
] as const;
export const JOB_COLUMNS = [
  'time_s',
  'step',
  'tokens',
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

/** Both directions of a node's link. */
export interface ILink {
  sent: LinkSummary;
  received: LinkSummary;
}

export interface IRankRows {
  who: RankSummary;
  table: RankTable;
}

export interface ILinkRows {
  node: string;
  link: ILink;
  table: LinkTable;
}

/** Rows of one job. */
export class SeriesStore implements ISeriesSink {
  constructor(private onChange: () => void = () => undefined) {}

  stream = '';
  seq = 0;
  attempt = 0;
  readonly ranks = new Map<number, IRankRows>();
  readonly links = new Map<string, ILinkRows>();
  readonly job: JobTable = new Table(JOB_COLUMNS);
  readonly evaluation: EvaluationTable = new Table(EVALUATION_COLUMNS);
  /** Recent figures, computed by the server. */
  summary: JobSummary | null = null;
  /** Texts of the model, oldest first. */
  texts: ReadonlyArray<WrittenText> = [];
  /** What is trained on. */
  data: DataPreview | null = null;

  take(series: JobSeries): void {
    const isWhole = series.since === 0 || series.stream !== this.stream;
    if (!isWhole && series.since !== this.seq) {
      return; // received before, or for another view
    }
    if (isWhole) {
      this.clear();
    }
    this.stream = series.stream;
    this.seq = series.seq;
    this.attempt = series.attempt;
    this.summary = series.summary;
    this.takeRanks(series);
    this.job.append((series.job ?? {}) as JobColumns);
    this.evaluation.append((series.evaluation ?? {}) as EvaluationColumns);
    this.texts = [...this.texts, ...(series.texts ?? [])].slice(-MOST_TEXTS);
    this.data = series.data ?? this.data;
    this.takeLinks(series);
    this.onChange();
  }

  private takeRanks(series: JobSeries): void {
    const rows = new Map((series.ranks ?? []).map(one => [one.rank, one]));
    for (const who of series.summary.ranks ?? []) {
      const before = this.ranks.get(who.rank)?.table;
      const added = rows.get(who.rank);
      if (before || added) {
        const table: RankTable = before ?? new Table(RANK_COLUMNS);
        table.append(added ?? {});
        this.ranks.set(who.rank, { who, table });
      }
    }
  }

  private takeLinks(series: JobSeries): void {
    const rows = new Map((series.links ?? []).map(one => [one.node, one]));
    const directions = series.summary.links ?? [];
    for (const sent of directions.filter(one => one.direction === 'sent')) {
      const { node } = sent;
      const received = directions.find(
        one => one.node === node && one.direction === 'received'
      );
      const table: LinkTable =
        this.links.get(node)?.table ?? new Table(LINK_COLUMNS);
      table.append(rows.get(node) ?? {});
      const link = { sent, received: received ?? sent };
      this.links.set(node, { node, link, table });
    }
  }

  private clear(): void {
    this.summary = null;
    this.ranks.clear();
    this.links.clear();
    this.job.clear();
    this.evaluation.clear();
    this.texts = [];
    this.data = null;
  }

  /** Rows of all ranks, by rank. */
  get sorted(): IRankRows[] {
    return [...this.ranks.values()].sort((a, b) => a.who.rank - b.who.rank);
  }

  get hasSteps(): boolean {
    return [...this.ranks.values()].some(rows => rows.table.length > 0);
  }

  /** Whether there are no steps, evaluations or texts. */
  get isEmpty(): boolean {
    return !(this.hasSteps || this.evaluation.length || this.texts.length);
  }
}
