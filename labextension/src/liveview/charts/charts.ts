/** The charts of a job, in their order. Pure. */

import type { TranslationBundle } from '@jupyterlab/translation';

import type { JobEntry } from '../../schema';
import type { SeriesStore } from '../../series/store';
import type { IChart, IChoice } from './chart';
import { linkChart } from './links';
import { lossChart } from './loss';
import { computeChart, mfuChart } from './shares';
import type { ITheme } from './theme';
import { throughputChart } from './throughput';

export function charts(
  store: SeriesStore,
  job: JobEntry,
  theme: ITheme,
  choice: IChoice,
  trans: TranslationBundle
): IChart[] {
  const links = linkChart(store, job, theme, choice, trans);
  return [
    throughputChart(store, theme, choice, trans),
    mfuChart(store, theme, choice, trans),
    ...(links ? [links] : []),
    computeChart(store, theme, choice, trans),
    lossChart(store, theme, trans)
  ];
}
