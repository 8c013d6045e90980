/** CSV of all data that the page has of a job. */

import type { SeriesStore } from '../../series/store';
import { type Cell, COLUMNS, type Row, rowsOf } from './tables';

export interface ICsv {
  text: string;
  /** Rows without the head. */
  rows: number;
}

export function csv(store: SeriesStore): ICsv {
  return csvOf(COLUMNS, rowsOf(store));
}

export function csvOf(
  columns: ReadonlyArray<string>,
  rows: ReadonlyArray<Row>
): ICsv {
  const lines = rows.map(row =>
    columns.map(name => cell(row[name], name)).join(',')
  );
  return {
    text: [columns.join(','), ...lines].join('\n') + '\n',
    rows: rows.length
  };
}

/** Columns of texts that people give. */
const NAMES = new Set([
  'node',
  'nodes',
  'name',
  'program',
  'submitted_by',
  'note'
]);

/** Names in quotes. A spreadsheet would compute what begins like a formula. */
function cell(value: Cell | undefined, name: string): string {
  if (value === undefined || value === '') {
    return '';
  }
  if (!NAMES.has(name)) {
    return String(value);
  }
  const text = String(value);
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return `"${plain.replace(/"/g, '""')}"`;
}
