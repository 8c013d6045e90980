/** CSV of everything that the page has of a job. */

import type { SeriesStore } from '../../series/store';
import { type Cell, COLUMNS, rowsOf } from './tables';

export interface ICsv {
  text: string;
  /** Rows without the head. */
  rows: number;
}

export function csv(store: SeriesStore): ICsv {
  const rows = rowsOf(store);
  const lines = rows.map(row =>
    COLUMNS.map(name => cell(row[name], name)).join(',')
  );
  return {
    text: [COLUMNS.join(','), ...lines].join('\n') + '\n',
    rows: rows.length
  };
}

/** Names of nodes in quotes. A spreadsheet would compute what begins like a formula. */
function cell(value: Cell | undefined, name: string): string {
  if (value === undefined || value === '') {
    return '';
  }
  if (name !== 'node') {
    return String(value);
  }
  const text = String(value);
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return `"${plain.replace(/"/g, '""')}"`;
}
