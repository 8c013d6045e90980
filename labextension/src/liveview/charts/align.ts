/** Aligns lines with different times on one axis, for uPlot. */

import uPlot from 'uplot';

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

/** Value and position of a line's label. */
export interface IReading {
  /** The value at the pointer, else the recent figure; NaN if unknown. */
  value: number;
  /** The line's own value there, for the position; NaN if nothing is drawn. */
  height: number;
  /** Set if the newest value up to there is NaN or infinite. */
  broken: string | null;
}

export function readingAt(
  chart: Pick<IChart, 'lines' | 'breaks'>,
  line: ILine,
  data: uPlot.AlignedData,
  pointed: number | null
): IReading {
  const times = data[0];
  const values = data[1 + chart.lines.indexOf(line)];
  const last = values.length - 1;
  const from = Math.min(pointed ?? last, last);
  let at = from;
  while (at >= 0 && typeof values[at] !== 'number') {
    at -= 1;
  }
  const [begin, end] = [
    at >= 0 ? times[at] : -Infinity,
    pointed === null ? Infinity : times[from]
  ];
  const broken = (chart.breaks ?? []).filter(
    one => one.line === line.key && one.time > begin && one.time <= end
  );
  const isNow = pointed === null && line.now !== undefined;
  const height = at >= 0 ? (values[at] as number) : NaN;
  return {
    value: isNow ? (line.now ?? NaN) : height,
    height,
    broken: broken.length ? broken[broken.length - 1].label : null
  };
}
