/** Throughput chart: the job's throughput and each rank's pace. */

import * as formats from '../../formats';
import {
  absentNote,
  hasValues,
  type IChart,
  type IChartInput,
  type ILine
} from './chart';
import { rankLines } from './rank_lines';

export function throughputChart(input: IChartInput): IChart {
  const { trans } = input;
  const paces = rankLines(input, 'pace_tokens_per_s');
  const lines = [...paces, ...jobLine(input)];
  return {
    key: 'throughput',
    title: trans.__('Throughput, tok/s'),
    subtitle: paces.length
      ? trans.__('job, and each rank’s pace: tokens over its own compute time')
      : '',
    lines,
    format: formats.rate,
    tick: formats.shortCount,
    note: lines.length ? undefined : absentNote(input.store, 'tokens_per_s'),
    height: 108
  };
}

function jobLine({ store, theme, trans }: IChartInput): ILine[] {
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
