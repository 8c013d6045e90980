/** The charts of shares, per rank: MFU and bubble. */

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
  const lines = rankLines(store, theme, choice, trans, table =>
    table.column('mfu')
  );
  return {
    ...shareChart(lines),
    key: 'mfu',
    title: trans.__('MFU'),
    subtitle: trans.__('per rank, of its own peak'),
    note: lines.length
      ? undefined
      : trans.__(
          'n/a: the peak of these devices or the model’s FLOPs are not known.'
        )
  };
}

export function bubbleChart(
  store: SeriesStore,
  theme: ITheme,
  choice: IChoice,
  trans: TranslationBundle
): IChart {
  const lines = rankLines(store, theme, choice, trans, table =>
    table.column('compute').map(share => 1 - share)
  );
  return {
    ...shareChart(lines),
    key: 'bubble',
    title: trans.__('Bubble'),
    subtitle: trans.__('share of a step without forward or backward'),
    note: lines.length
      ? undefined
      : trans.__('n/a: not reported; recorder.step(compute_s=…) reports it.')
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
