/** Chart stack: all charts of a job on one time axis. */

import * as React from 'react';

import type { SeriesStore } from '../series/store';
import type { IChartInput } from './charts/chart';
import { charts } from './charts/charts';
import { Plot } from './charts/plot';
import type { ILook } from './toolbar';

export function Charts(
  props: IChartInput & { look: ILook; width: number; syncKey: string }
): JSX.Element {
  const { store, theme, look, width, syncKey } = props;
  const shown = charts(props);
  const span = timeSpan(store, look.range);
  const last = shown.filter(chart => !chart.note).pop();
  return (
    <div className="mnt-charts">
      {shown.map(chart => (
        <Plot
          key={chart.key}
          chart={chart}
          theme={theme}
          scale={look.scale}
          span={span}
          width={width}
          syncKey={syncKey}
          showsTime={chart === last}
        />
      ))}
    </div>
  );
}

/** From the first step or evaluation on; link samples start earlier. */
function timeSpan(store: SeriesStore, range: number | null): [number, number] {
  let [begin, end] = [Infinity, -Infinity];
  for (const table of [
    store.job,
    store.evaluation,
    ...store.sorted.map(rows => rows.table)
  ]) {
    if (table.length) {
      begin = Math.min(begin, table.column('time_s')[0]);
      end = Math.max(end, table.last('time_s'));
    }
  }
  return [range === null ? begin : Math.max(begin, end - range), end];
}
