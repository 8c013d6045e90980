/** CSV of the figures of a job and its ranks. */

import {
  JOB_COLUMNS,
  RANK_COLUMNS,
  type SeriesStore
} from '../../series/store';
import type { Table } from '../../series/table';

const COLUMNS = [...new Set([...RANK_COLUMNS, ...JOB_COLUMNS])];

/** Recent figures first, then a row per step of the job and of each rank. */
export function csv(store: SeriesStore): string {
  const lines = [['row', 'rank', 'node', ...COLUMNS].join(',')];
  if (store.summary) {
    lines.push(recent('job', '', { ...store.summary }));
  }
  for (const { who } of store.sorted) {
    lines.push(recent(who.rank, cell(who.node), { ...who }));
  }
  lines.push(...steps('job', '', store.job, JOB_COLUMNS));
  for (const { who, table } of store.sorted) {
    const node = cell(who.node);
    lines.push(...steps(who.rank, node, table, RANK_COLUMNS));
  }
  return lines.join('\n') + '\n';
}

/** Text in quotes. A spreadsheet would compute what begins like a formula. */
function cell(text: string): string {
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return `"${plain.replace(/"/g, '""')}"`;
}

function recent(
  rank: number | string,
  node: string,
  from: Partial<Record<string, unknown>>
): string {
  const values = COLUMNS.map(name => from[name] ?? '');
  return ['recent', rank, node, ...values].join(',');
}

function steps<Name extends string>(
  rank: number | string,
  node: string,
  table: Table<Name>,
  names: ReadonlyArray<Name>
): string[] {
  const known = new Set<string>(names);
  const broken = new Map(
    table.breaks.map(one => [`${one.name} ${one.time_s}`, one.value])
  );
  const times = table.column('time_s' as Name);
  return Array.from({ length: table.length }, (_, row) => {
    const values = COLUMNS.map(name => {
      const value = known.has(name) ? table.column(name as any)[row] : NaN;
      return Number.isNaN(value)
        ? (broken.get(`${name} ${times[row]}`) ?? '')
        : String(value);
    });
    return ['step', rank, node, ...values].join(',');
  });
}
