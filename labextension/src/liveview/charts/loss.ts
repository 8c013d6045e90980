/** Loss chart: training and evaluation loss. */

import * as formats from '../../formats';
import type { EvaluationTable, JobTable } from '../../series/store';
import { notFiniteLine } from '../../words';
import {
  absentNote,
  hasValues,
  type IChart,
  type IChartInput,
  type ILine
} from './chart';

export function lossChart({ store, theme, trans }: IChartInput): IChart {
  const y = store.job.column('loss');
  const lines: ILine[] = [];
  const breaks = [
    ...breaksOf(store.job, 'loss'),
    ...breaksOf(store.evaluation, 'evaluation')
  ].sort((a, b) => a.time - b.time);
  if (hasValues(y) || store.job.breaks.length) {
    lines.push({
      key: 'loss',
      label: trans.__('loss'),
      x: store.job.column('time_s'),
      y,
      now: finite(store.summary?.loss),
      color: theme.job,
      dash: [],
      width: 2
    });
  }
  if (store.evaluation.length) {
    lines.push({
      key: 'evaluation',
      label: trans.__('evaluation'),
      x: store.evaluation.column('time_s'),
      y: store.evaluation.column('loss'),
      now: finite(store.summary?.evaluation_loss),
      color: theme.fill,
      dash: [6, 4],
      width: 1.5,
      isMarked: true
    });
  }
  return {
    key: 'loss',
    title: trans.__('Loss'),
    subtitle: '',
    lines,
    format: value => formats.loss(value),
    tick: formats.plain,
    breaks,
    alarm: (store.summary && notFiniteLine(store.summary, trans)) ?? undefined,
    note: lines.length ? undefined : absentNote(store, 'loss'),
    height: 72
  };
}

/** NaN and infinity are written as breaks of the line. */
function finite(
  loss: number | formats.NonFinite | null | undefined
): number | undefined {
  return typeof loss === 'number' ? loss : undefined;
}

function breaksOf(
  table: JobTable | EvaluationTable,
  line: string
): NonNullable<IChart['breaks']> {
  return table.breaks
    .filter(one => one.name === 'loss')
    .map(one => ({
      time: one.time_s,
      line,
      label: formats.nonFiniteText(one.value)
    }));
}
