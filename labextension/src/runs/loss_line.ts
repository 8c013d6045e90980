/** The line of a run's losses: those of its jobs one after the other, in pixels. Pure. */

import * as formats from '../formats';
import type { JobEntry, LossLine } from '../schema';
import { trans } from '../trans';

/** The lowest and the highest loss of some steps; NaN = none was finite. */
interface IPoint {
  step: number;
  low: number;
  high: number;
}

/** Room of a line. */
export interface IRoom {
  width: number;
  height: number;
}

/** The lines of these jobs, the oldest first. */
function linesOf(jobs: ReadonlyArray<JobEntry>): LossLine[] {
  return [...jobs].reverse().flatMap(job => job.loss_line ?? []);
}

/** A step that a later job makes again takes the place of the earlier one. */
export function pointsOf(jobs: ReadonlyArray<JobEntry>): IPoint[] {
  return linesOf(jobs).reduce<IPoint[]>(
    (points, { begin, width, lows, highs }) => [
      ...points.filter(point => point.step < begin),
      ...lows.flatMap((low, i) => {
        const step = begin + i * width + (width - 1) / 2;
        return low === null
          ? []
          : { step, low: Number(low), high: Number(highs[i]) };
      })
    ],
    []
  );
}

/** SVG path of a band from lowest to highest losses; empty = nothing to draw. */
export function lossPath(
  jobs: ReadonlyArray<JobEntry>,
  { width, height }: IRoom
): string {
  const points = pointsOf(jobs);
  const total = linesOf(jobs).pop()?.total_steps ?? 0;
  const known = points
    .flatMap(({ low, high }) => [low, high])
    .filter(Number.isFinite);
  const [lowest, highest] = [Math.min(...known), Math.max(...known)];
  const last = Math.max(total, points[points.length - 1]?.step ?? 0, 1);
  const x = (step: number) => ((width * step) / last).toFixed(1);
  const y = (loss: number) =>
    highest > lowest
      ? ((height * (highest - loss)) / (highest - lowest)).toFixed(1)
      : (height / 2).toFixed(1);
  return bandsOf(points)
    .map(band => {
      const top = band.map(({ step, high }) => `${x(step)} ${y(high)}`);
      const bottom = band.map(({ step, low }) => `${x(step)} ${y(low)}`);
      return `M${[...top, ...bottom.reverse()].join('L')}Z`;
    })
    .join('');
}

/** What lies between gaps. */
function bandsOf(points: ReadonlyArray<IPoint>): IPoint[][] {
  const bands: IPoint[][] = [[]];
  for (const point of points) {
    if (Number.isNaN(point.low)) {
      bands.push([]);
    } else {
      bands[bands.length - 1].push(point);
    }
  }
  return bands.filter(band => band.length);
}

/** `loss from 4.212 to 2.105`; empty = these jobs have no line. */
export function lossWords(jobs: ReadonlyArray<JobEntry>): string {
  const lines = linesOf(jobs);
  return lines.length
    ? trans.__(
        'loss from %1 to %2',
        formats.loss(lines[0].first),
        formats.loss(lines[lines.length - 1].last)
      )
    : '';
}

/** The last loss: of an old job that of its line, as its journals are not read. */
export function lossOf({
  numbers,
  loss_line
}: JobEntry): LossLine['last'] | null {
  return numbers.loss ?? loss_line?.last ?? null;
}
