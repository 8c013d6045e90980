/** Ticks and words of the horizontal axis. */

import type uPlot from 'uplot';

import * as formats from '../../formats';
import { SHORT_RUN_S } from '../../schema';
import { trans } from '../../trans';
import type { AxisKind, ISample } from './axis';
import type { Range } from './range';

/** Distances between times on the axis. */
const SECONDS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600,
  43200, 86400, 172800, 604800
];

/** 1, 2 and 5 × 10ⁿ from 1 on. */
const COUNTS = Array.from({ length: 15 }, (_, exponent) =>
  [1, 2, 5].map(leading => leading * 10 ** exponent)
).flat();

export function showsSeconds([first, last]: Range): boolean {
  return last - first < SHORT_RUN_S;
}

/** The least width of the shown range, so that it can be divided. */
export function atLeastOne([from, to]: Range): [number, number] {
  return [from, Math.max(to, from + 1)];
}

/** Space between ticks, their distances and texts. */
export function axisTicks(
  kind: AxisKind,
  span: Range
): Pick<uPlot.Axis, 'space' | 'incrs' | 'values'> {
  if (kind === 'time') {
    const withSeconds = showsSeconds(span);
    return {
      space: 20 + 8 * formats.clock(span[0], withSeconds).length,
      incrs: SECONDS,
      values: (_, splits) =>
        splits.map(split => formats.clock(split, withSeconds))
    };
  }
  if (kind === 'elapsed') {
    return {
      space: 76,
      incrs: SECONDS,
      values: (_, splits) => splits.map(split => formats.duration(split))
    };
  }
  return {
    space: 76,
    incrs: COUNTS,
    values: (_, splits) => {
      const step = splits.length > 1 ? splits[1] - splits[0] : 1;
      return splits.map(split =>
        kind === 'step'
          ? formats.count(split)
          : formats.shortAmount(split, step)
      );
    }
  };
}

/** The unit of the axis, for its end. */
export function axisNames(): Record<AxisKind, string> {
  return {
    step: trans.__('step'),
    tokens: trans.__('tokens'),
    time: trans.__('time'),
    elapsed: trans.__('time since the start')
  };
}

/** How the samples of an axis are described. */
export interface ISampleWords {
  sample: (sample: ISample) => string;
  range: (first: ISample, last: ISample) => string;
}

/** Time, step and tokens of a sample. */
function sampleText(sample: ISample): string {
  return [
    formats.clock(sample.time, true),
    trans.__('step %1', formats.count(sample.step)),
    ...(Number.isNaN(sample.tokens)
      ? []
      : [trans.__('%1 tokens', formats.amount(sample.tokens))])
  ].join(', ');
}

/** The shown range in words: times and steps. */
function rangeText(first: ISample, last: ISample): string {
  const withSeconds = showsSeconds([first.time, last.time]);
  return trans.__(
    '%1 to %2, steps %3 to %4',
    formats.clock(first.time, withSeconds),
    formats.clock(last.time, withSeconds),
    formats.count(first.step),
    formats.count(last.step)
  );
}

/** Of a job: when each sample was. */
export const JOB_WORDS: ISampleWords = { sample: sampleText, range: rangeText };

/** Of several runs, which were at a sample at different times. */
export function runWords(kind: AxisKind): ISampleWords {
  const place = ({ x }: ISample) =>
    kind === 'step'
      ? trans.__('step %1', formats.count(x))
      : kind === 'tokens'
        ? trans.__('%1 tokens', formats.amount(x))
        : formats.duration(x);
  return {
    sample: place,
    range: (first, last) => trans.__('%1 to %2', place(first), place(last))
  };
}
