/** The rows of all ranks as text to copy. */

import { RANK_COLUMNS, type SeriesStore } from '../../series/store';

/** A row per rank and step, as the page has them. */
export function csv(store: SeriesStore): string {
  const lines = [['rank', 'node', ...RANK_COLUMNS].join(',')];
  for (const { who, table } of store.sorted) {
    const columns = RANK_COLUMNS.map(name => table.column(name));
    for (let row = 0; row < table.length; row++) {
      const values = columns.map(column =>
        Number.isNaN(column[row]) ? '' : String(column[row])
      );
      lines.push([who.rank, JSON.stringify(who.node), ...values].join(','));
    }
  }
  return lines.join('\n') + '\n';
}
