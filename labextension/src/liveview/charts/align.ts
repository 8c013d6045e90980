/** Aligns lines with different times on one axis, for uPlot. */

import uPlot from 'uplot';

import { before } from '../axis/range';
import type { IChart, ILine } from './chart';

/** Join lines on one time axis: ranks finish steps at different times. */
export function align(lines: ReadonlyArray<ILine>): uPlot.AlignedData {
  if (lines.length === 0) {
    return [[]];
  }
  const plain = (values: Float64Array) =>
    Array.from(values, value => (Number.isNaN(value) ? null : value));
  return uPlot.join(
    lines.map(line => [Array.from(line.x), plain(line.y)] as uPlot.AlignedData)
  );
}

/** Smaller than the distance of any two samples. */
const ROUNDING = 1e-6;

/** Value and position of a line's label. */
export interface IReading {
  /** Where the value is on the horizontal axis; NaN if nothing is drawn. */
  at: number;
  /** The value at the pointer, else the recent figure; NaN if unknown. */
  value: number;
  /** The line's own value there, for the position; NaN if nothing is drawn. */
  height: number;
  /** Set if the newest value up to there is NaN or infinite. */
  broken: string | null;
}

/** The reading at `pointed` on the horizontal axis; `null` = the newest. */
export function readingAt(
  chart: Pick<IChart, 'lines' | 'breaks'>,
  line: ILine,
  data: uPlot.AlignedData,
  pointed: number | null
): IReading {
  const places = data[0];
  const values = data[1 + chart.lines.indexOf(line)];
  let at =
    pointed === null ? values.length - 1 : before(places, pointed + ROUNDING);
  const isStrict = line.keepsGaps && pointed !== null;
  while (!isStrict && at >= 0 && typeof values[at] !== 'number') {
    at -= 1;
  }
  const [begin, end] = [at >= 0 ? places[at] : -Infinity, pointed ?? Infinity];
  const broken = (chart.breaks ?? []).filter(
    one => one.line === line.key && one.time > begin && one.time <= end
  );
  const isNow = pointed === null && line.now !== undefined;
  const height = at >= 0 ? (values[at] ?? NaN) : NaN;
  return {
    at: at >= 0 ? places[at] : NaN,
    value: isNow ? (line.now ?? NaN) : height,
    height,
    broken: broken.length ? broken[broken.length - 1].label : null
  };
}
