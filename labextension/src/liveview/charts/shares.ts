/** The charts of shares, per rank: MFU and computing. */

import type { TranslationBundle } from '@jupyterlab/translation';

import * as formats from '../../formats';
import type { SeriesStore } from '../../series/store';
import { type IChart, type IChoice, type ILine, shareDigits } from './chart';
import { rankLines } from './rank_lines';
import type { ITheme } from './theme';

export function mfuChart(
  store: SeriesStore,
  theme: ITheme,
  choice: IChoice,
  trans: TranslationBundle
): IChart {
  const lines = rankLines(store, theme, choice, trans, 'mfu');
  return {
    ...shareChart(lines),
    key: 'mfu',
    title: trans.__('MFU'),
    subtitle: trans.__('per rank, of its own peak'),
    note: lines.length
      ? undefined
      : trans.__('n/a: %1', store.summary?.missing?.mfu ?? '')
  };
}

export function computeChart(
  store: SeriesStore,
  theme: ITheme,
  choice: IChoice,
  trans: TranslationBundle
): IChart {
  const lines = rankLines(store, theme, choice, trans, 'compute');
  const { bubble, schedule_bubble: own } = store.summary ?? {};
  const words = [trans.__('forward, backward, optimizer: share of a step')];
  if (formats.isKnown(bubble)) {
    words.push(trans.__('bubble %1', formats.percent(bubble)));
    if (formats.isKnown(own)) {
      words.push(trans.__('the schedule’s own %1', formats.percent(own)));
    }
  }
  return {
    ...shareChart(lines),
    key: 'compute',
    title: trans.__('Computing'),
    subtitle: words.join('; '),
    note: lines.length
      ? undefined
      : trans.__('n/a: %1', store.summary?.missing?.bubble ?? '')
  };
}

function shareChart(
  lines: ILine[]
): Pick<IChart, 'lines' | 'format' | 'tick' | 'height'> {
  return {
    lines,
    format: value => formats.percent(value),
    tick: (value, step) => formats.percent(value, shareDigits(step)),
    height: 72
  };
}
