/** All data of a job as tables, for a CSV file. */

import type { JobEntry } from '../../schema';
import {
  EVALUATION_COLUMNS,
  JOB_COLUMNS,
  LINK_COLUMNS,
  RANK_COLUMNS,
  type SeriesStore
} from '../../series/store';
import type { Table } from '../../series/table';

export type Cell = string | number;

/** A row: its subject, and its values by column. */
export type Row = Partial<Record<string, Cell>>;

/** Which rows belong to whom. */
const WHO = ['row', 'rank', 'node', 'event', 'problem'] as const;

/** Columns of figures, each once. */
const FIGURES = [
  ...new Set<string>([
    ...RANK_COLUMNS,
    ...JOB_COLUMNS,
    ...EVALUATION_COLUMNS,
    'evaluation_loss',
    ...LINK_COLUMNS,
    'sent_share',
    'received_share',
    'sent_capacity',
    'received_capacity',
    'end_s',
    'share'
  ])
];

export const COLUMNS: ReadonlyArray<string> = [...WHO, ...FIGURES];

/** Recent figures first, then steps, evaluations, links and events. */
export function rowsOf(store: SeriesStore): Row[] {
  return [
    ...recentRows(store),
    ...tableRows(store.job, JOB_COLUMNS, { row: 'step', rank: 'job' }),
    ...store.sorted.flatMap(({ who, table }) =>
      tableRows(table, RANK_COLUMNS, {
        row: 'step',
        rank: who.rank,
        node: who.node
      })
    ),
    ...tableRows(store.evaluation, EVALUATION_COLUMNS, {
      row: 'evaluation',
      rank: 'job'
    }).map(({ loss, ...row }) => ({ ...row, evaluation_loss: loss })),
    ...[...store.links.values()].flatMap(({ node, table }) =>
      tableRows(table, LINK_COLUMNS, { row: 'link', node })
    ),
    ...eventRows(store)
  ];
}

function recentRows(store: SeriesStore): Row[] {
  const job = store.summary
    ? [{ row: 'recent', rank: 'job', ...figuresOf({ ...store.summary }) }]
    : [];
  const ranks = store.sorted.map(({ who }) => ({
    row: 'recent',
    rank: who.rank,
    node: who.node,
    ...figuresOf({ ...who })
  }));
  const links = [...store.links.values()].map(({ node, link }) => ({
    row: 'recent',
    node,
    ...figuresOf({
      sent: link.sent.bytes_per_s,
      own_sent: link.sent.own_bytes_per_s,
      sent_share: link.sent.utilization,
      sent_capacity: link.sent.capacity?.bytes_per_s,
      received: link.received.bytes_per_s,
      own_received: link.received.own_bytes_per_s,
      received_share: link.received.utilization,
      received_capacity: link.received.capacity?.bytes_per_s
    })
  }));
  return [...job, ...ranks, ...links];
}

function figuresOf(from: Partial<Record<string, unknown>>): Row {
  return Object.fromEntries(
    FIGURES.flatMap(name => {
      const value = from[name];
      return typeof value === 'number' || typeof value === 'string'
        ? [[name, value]]
        : [];
    })
  );
}

function eventRows(store: SeriesStore): Row[] {
  return (store.summary?.events ?? []).map(one => ({
    row: 'event',
    event: one.kind,
    node: one.node ?? '',
    problem: one.problem?.kind ?? '',
    ...figuresOf({ ...one })
  }));
}

/** Rows of a table; values that are NaN or infinite by name, unknown ones left out. */
function tableRows<Name extends string>(
  table: Table<Name>,
  names: ReadonlyArray<Name>,
  who: Row
): Row[] {
  const broken = new Map<string, Cell>(
    table.breaks.map(one => [`${one.name} ${one.time_s}`, one.value])
  );
  const times = table.column('time_s' as Name);
  const columns = names.map(name => [name, table.column(name)] as const);
  return Array.from({ length: table.length }, (_, at) => {
    const row: Row = { ...who };
    for (const [name, column] of columns) {
      const value = column[at];
      const told = Number.isNaN(value)
        ? broken.get(`${name} ${times[at]}`)
        : value;
      if (told !== undefined) {
        row[name] = told;
      }
    }
    return row;
  });
}

/** Name of a file of this job: letters, digits, points and dashes. */
export function fileName(job: Pick<JobEntry, 'name' | 'job_id'>, end: string) {
  const plain = job.name.replace(/[^\w.-]+/g, '-').replace(/^[-.]+/, '');
  return [plain.slice(0, 80), job.job_id].filter(Boolean).join('-') + end;
}
