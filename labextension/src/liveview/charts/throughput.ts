/** Throughput chart: the job's throughput and each rank's pace. */

import * as formats from '../../formats';
import {
  absentNote,
  hasValues,
  type IChart,
  type IChartInput,
  tableLine
} from './chart';
import { rankLines } from './rank_lines';
import { trans } from '../../trans';

export function throughputChart(input: IChartInput): IChart {
  const { store, theme } = input;
  const paces = rankLines(input, 'pace_tokens_per_s');
  const job = tableLine(
    store.job,
    'tokens_per_s',
    store.summary?.tokens_per_s ?? null,
    {
      key: 'job',
      label: trans.__('job'),
      color: theme.job,
      dash: [],
      width: 2
    }
  );
  const lines = hasValues(job.y) ? [...paces, job] : paces;
  return {
    key: 'throughput',
    title: trans.__('Throughput, tok/s'),
    subtitle: paces.length
      ? trans.__('job, and each rank’s pace: tokens over its own compute time')
      : '',
    lines,
    format: formats.rate,
    tick: formats.shortCount,
    note: lines.length ? undefined : absentNote(store, 'tokens_per_s'),
    height: 108
  };
}
