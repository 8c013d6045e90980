/** The chart of throughput: the job's, and the pace of each rank. */

import type { TranslationBundle } from '@jupyterlab/translation';

import * as formats from '../../formats';
import type { SeriesStore } from '../../series/store';
import { hasValues, type IChart, type IChoice, type ILine } from './chart';
import { rankLines } from './rank_lines';
import type { ITheme } from './theme';

export function throughputChart(
  store: SeriesStore,
  theme: ITheme,
  choice: IChoice,
  trans: TranslationBundle
): IChart {
  const paces = rankLines(store, theme, choice, trans, 'pace_tokens_per_s');
  const lines = [...paces, ...jobLine(store, theme, trans)];
  return {
    key: 'throughput',
    title: trans.__('Throughput, tok/s'),
    subtitle: paces.length
      ? trans.__('job, and each rank’s pace: tokens over its own compute time')
      : '',
    lines,
    format: formats.rate,
    tick: value => formats.rate(value, true),
    note: lines.length ? undefined : trans.__('No step yet.'),
    height: 108
  };
}

function jobLine(
  store: SeriesStore,
  theme: ITheme,
  trans: TranslationBundle
): ILine[] {
  const y = store.job.column('tokens_per_s');
  return hasValues(y)
    ? [
        {
          key: 'job',
          label: trans.__('job'),
          x: store.job.column('time_s'),
          y,
          now: store.summary?.tokens_per_s,
          color: theme.job,
          dash: [],
          width: 2
        }
      ]
    : [];
}
