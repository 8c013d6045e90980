/** Loss chart: training and evaluation loss. */

import * as formats from '../../formats';
import type { EvaluationTable, JobTable } from '../../series/store';
import { notFiniteLine } from '../../words';
import {
  absentNote,
  hasValues,
  type IChart,
  type IChartInput,
  tableLine
} from './chart';
import { trans } from '../../trans';

export function lossChart({ store, theme }: IChartInput): IChart {
  const breaks = [
    ...breaksOf(store.job, 'loss'),
    ...breaksOf(store.evaluation, 'evaluation')
  ].sort((a, b) => a.time - b.time);
  const training = tableLine(store.job, 'loss', store.summary?.loss, {
    key: 'loss',
    label: trans.__('loss'),
    color: theme.job,
    dash: [],
    width: 2
  });
  const evaluation = tableLine(
    store.evaluation,
    'loss',
    store.summary?.evaluation_loss,
    {
      key: 'evaluation',
      label: trans.__('evaluation'),
      color: theme.fill,
      dash: [6, 4],
      width: 1.5,
      isMarked: true
    }
  );
  const hasLoss = hasValues(training.y) || store.job.breaks.length > 0;
  const lines = [
    ...(hasLoss ? [training] : []),
    ...(store.evaluation.length ? [evaluation] : [])
  ];
  return {
    key: 'loss',
    title: trans.__('Loss'),
    subtitle: '',
    lines,
    format: value => formats.loss(value),
    tick: formats.plain,
    breaks,
    alarm: (store.summary && notFiniteLine(store.summary)) ?? undefined,
    note: lines.length ? undefined : absentNote(store, 'loss'),
    height: 72
  };
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
      label: formats.loss(one.value)
    }));
}
