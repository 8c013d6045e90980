/** Lines with clocks of their own on one time axis, as uPlot takes them. */

import uPlot from 'uplot';

import type { ILine } from './chart';

/** One time axis for lines whose ranks each have a clock of their own. */
export function align(lines: ReadonlyArray<ILine>): uPlot.AlignedData {
  if (lines.length === 0) {
    return [[]];
  }
  const plain = (values: Float64Array) =>
    Array.from(values, value => (Number.isNaN(value) ? null : value));
  const first = lines[0].x;
  if (lines.every(line => isSame(line.x, first))) {
    return [Array.from(first), ...lines.map(line => plain(line.y))];
  }
  return uPlot.join(
    lines.map(line => [Array.from(line.x), plain(line.y)] as uPlot.AlignedData)
  );
}

function isSame(a: Float64Array, b: Float64Array): boolean {
  if (a.length !== b.length) {
    return false;
  }
  // Rows of one table, or of several that were filled together.
  return (
    a.length === 0 ||
    (a[0] === b[0] &&
      a[a.length - 1] === b[a.length - 1] &&
      a[a.length >> 1] === b[a.length >> 1])
  );
}

/** The value under the pointer, or the last one. */
export function valueAt(
  line: ILine,
  data: uPlot.AlignedData,
  pointed: number | null,
  lines: ILine[]
): number {
  const values = data[1 + lines.indexOf(line)] as ReadonlyArray<
    number | null | undefined
  >;
  const from = pointed ?? values.length - 1;
  for (let i = Math.min(from, values.length - 1); i >= 0; i--) {
    const value = values[i];
    if (typeof value === 'number' && !Number.isNaN(value)) {
      return value;
    }
  }
  return NaN;
}
