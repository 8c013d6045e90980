/** Smoothing: exponential mean without start-up bias. Pure. */

import type { IChart, ILine } from '../charts/chart';

/** Choices of the toolbar: the share of the mean so far that the next step keeps. */
export const SMOOTHINGS = [0, 0.5, 0.8, 0.9, 0.95, 0.99] as const;

/** Opacity of the raw line behind. */
const FAINT = 0.38;

/**
 * Exponential mean of the known values; NaN stays NaN and changes nothing.
 *
 * `weight`, 0 to 0.99, is what the mean keeps at each step: a value that stands for several steps
 * counts as so many, so that runs of unequal length, whose rows are downsampled differently, are smoothed
 * alike. Divided by the weights so far, so that the first values are not drawn towards zero.
 *
 * @param steps Of the values; without, each is a step.
 * @param seconds Of values that are rates: their mean is what was done over the time that it took, however
 *   long each step was.
 */
export function smoothed(
  values: Float64Array,
  weight: number,
  steps?: Float64Array,
  seconds?: Float64Array
): Float64Array {
  let [mean, weights] = [0, 0];
  return values.map((value, at) => {
    if (Number.isNaN(value)) {
      return NaN;
    }
    const kept = weight ** stepsOf(at, steps);
    const counts = (1 - kept) * lasting(seconds?.[at]);
    mean = kept * mean + counts * value;
    weights = kept * weights + counts;
    return mean / weights;
  });
}

/** How many steps a row stands for: those since the one before; the first, as many as the second. */
function stepsOf(at: number, steps?: Float64Array): number {
  if (!steps || steps.length < 2) {
    return 1;
  }
  const count = at > 0 ? steps[at] - steps[at - 1] : steps[1] - steps[0];
  return count > 0 ? count : 1;
}

/** What a value counts for; of a time that is not known, next to nothing. */
function lasting(seconds = 1): number {
  return seconds > 0 ? seconds : Number.EPSILON;
}

/** The chart with smoothed lines and the raw ones behind; areas are left as they are. */
export function smooth(chart: IChart, weight: number): IChart {
  const areas = new Set(chart.lines.flatMap(line => line.fillTo ?? []));
  const isPlain = (line: ILine) =>
    !line.isFilled && !line.fillTo && !areas.has(line.key) && !line.isMarked;
  if (!(weight > 0)) {
    return chart;
  }
  const lines = chart.lines.filter(isPlain);
  const raw = lines.map(line => ({
    ...line,
    key: `raw-${line.key}`,
    opacity: FAINT,
    width: 1,
    dash: [],
    isQuiet: true
  }));
  return {
    ...chart,
    lines: [
      ...raw,
      ...chart.lines.map(line =>
        lines.includes(line)
          ? {
              ...line,
              y: smoothed(line.y, weight, line.steps, line.seconds),
              now: undefined
            }
          : line
      )
    ]
  };
}
