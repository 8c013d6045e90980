/** MFU and computing charts, per rank. */

import * as formats from '../../formats';
import {
  emptyNote,
  type IChart,
  type IChartInput,
  type ILine,
  shareDigits
} from './chart';
import { rankLines } from './rank_lines';
import { trans } from '../../trans';

export function mfuChart(input: IChartInput): IChart {
  const { store } = input;
  const lines = rankLines(input, 'mfu');
  return {
    ...shareChart(lines),
    key: 'mfu',
    title: trans.__('MFU'),
    subtitle: trans.__('per rank, of its own peak'),
    note: emptyNote(lines, store, 'mfu')
  };
}

export function computeChart(input: IChartInput): IChart {
  const { store } = input;
  const lines = rankLines(input, 'compute');
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
    note: emptyNote(lines, store, 'bubble')
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
