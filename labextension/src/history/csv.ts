/** A node's history as CSV: one row per value, like `mntrain history --csv`. Pure. */

import type { NodeHistory } from '../schema';

const COLUMNS = ['time_s', 'part', 'figure', 'mean', 'low', 'high'];

export function historyCsv(history: NodeHistory): string {
  const rows = (history.parts ?? []).flatMap(part =>
    (part.lines ?? []).flatMap(({ figure, mean, low, high }) =>
      mean.flatMap((value, i) => {
        const time = history.begin_s + i * history.step_s;
        const [least, most] = [low, high].map(one => one?.[i] ?? value);
        const name = part.key || part.kind;
        return value === null
          ? []
          : [[time, name, figure, value, least, most].join(',')];
      })
    )
  );
  return [COLUMNS.join(','), ...rows].join('\n') + '\n';
}
