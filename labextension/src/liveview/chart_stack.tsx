/** All charts of a job, below each other on one time axis. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { JobEntry } from '../schema';
import type { SeriesStore } from '../series/store';
import type { ILook } from './toolbar';
import { charts } from './charts/charts';
import { Plot } from './charts/plot';
import type { ITheme } from './charts/theme';

export function Charts(props: {
  store: SeriesStore;
  job: JobEntry;
  theme: ITheme;
  look: ILook;
  width: number;
  syncKey: string;
  trans: TranslationBundle;
}): JSX.Element {
  const { store, job, theme, look, width, syncKey, trans } = props;
  const shown = charts(store, job, theme, look.choice, trans);
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

/** From the first step or evaluation on: links are counted before there is anything to see on them. */
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
