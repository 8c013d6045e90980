/** Charts of several runs: loss and throughput, a line per run. Pure. */

import * as formats from '../formats';
import type { AxisKind } from '../liveview/axis/axis';
import {
  hasValues,
  type IChart,
  type ILine,
  secondsTo
} from '../liveview/charts/chart';
import { DASHES, type ITheme } from '../liveview/charts/theme';
import { trans } from '../trans';
import { axisOf, type IRunSeries } from './run_series';

export interface ILettered {
  letter: string;
  /** Its place among all compared runs: hidden ones keep theirs. */
  place: number;
  series: IRunSeries;
}

export function comparedCharts(
  runs: ReadonlyArray<ILettered>,
  kind: AxisKind,
  theme: ITheme
): IChart[] {
  return [lossChart(runs, kind, theme), throughputChart(runs, kind, theme)];
}

function lossChart(
  runs: ReadonlyArray<ILettered>,
  kind: AxisKind,
  theme: ITheme
): IChart {
  const lines = linesOf(runs, 'loss', kind, theme);
  const breaks = runs.flatMap(({ letter, series }) => {
    const axis = axisOf(series, kind);
    return series.breaks.map(one => ({
      time: axis.ofTime(one.time_s),
      line: letter,
      label: formats.loss(one.value)
    }));
  });
  return {
    key: 'loss',
    title: trans.__('Loss'),
    subtitle: '',
    lines,
    format: value => formats.loss(value),
    tick: formats.plain,
    breaks: breaks.sort((a, b) => a.time - b.time),
    note: lines.length
      ? undefined
      : trans.__('None of these runs reported a loss'),
    height: 220
  };
}

function throughputChart(
  runs: ReadonlyArray<ILettered>,
  kind: AxisKind,
  theme: ITheme
): IChart {
  const lines = linesOf(runs, 'tokens_per_s', kind, theme);
  return {
    key: 'throughput',
    title: trans.__('Throughput, tok/s'),
    subtitle: '',
    lines,
    format: formats.rate,
    tick: formats.shortCount,
    note: lines.length
      ? undefined
      : trans.__('None of these runs reported its tokens'),
    height: 108
  };
}

function linesOf(
  runs: ReadonlyArray<ILettered>,
  column: 'loss' | 'tokens_per_s',
  kind: AxisKind,
  theme: ITheme
): ILine[] {
  return runs
    .filter(({ series }) => hasValues(series.columns[column]))
    .map(({ letter, place, series }) => ({
      key: letter,
      label: letter,
      x: axisOf(series, kind).xs,
      y: series.columns[column],
      steps: series.columns.step,
      seconds:
        column === 'loss' ? undefined : secondsTo(series.columns.elapsed),
      color: theme.ranks[place],
      dash: DASHES[place],
      width: 2
    }));
}
