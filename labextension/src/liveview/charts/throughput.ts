/** Throughput chart: the job's throughput and each rank's pace. */

import * as formats from '../../formats';
import {
  emptyNote,
  hasValues,
  type IChart,
  type IChartInput,
  type ILine,
  secondsTo,
  tableLine
} from './chart';
import { rankLines } from './rank_lines';
import { trans } from '../../trans';

/** A prediction this many times the highest value is not drawn: it is a bad guess. */
const MOST_ABOVE = 2;

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
      width: 2,
      seconds: secondsTo(store.job.column('time_s'))
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
    levels: predicted(store.summary?.predicted_tokens_per_s, lines),
    format: formats.rate,
    tick: formats.shortCount,
    note: emptyNote(lines, store, 'tokens_per_s'),
    height: 108
  };
}

/** The throughput that the plan predicted, unless it would flatten all lines. */
function predicted(
  rate: number | null | undefined,
  lines: ILine[]
): IChart['levels'] {
  const highest = lines
    .flatMap(line => [...line.y])
    .reduce((top, y) => (y > top ? y : top), 0);
  return typeof rate === 'number' && rate <= MOST_ABOVE * highest
    ? [
        {
          at: rate,
          label: trans.__('predicted'),
          value: formats.rate(rate),
          isDashed: true
        }
      ]
    : [];
}
