/** Band: minimum, median and maximum of many lines. */

export interface IBand {
  x: Float64Array;
  /** Of the points; absent if the lines have none. */
  steps?: Float64Array;
  low: Float64Array;
  middle: Float64Array;
  high: Float64Array;
}

/** Minimum, median and maximum of several lines, on the time axis of the longest. */
export function band(
  lines: ReadonlyArray<{
    x: Float64Array;
    y: Float64Array;
    steps?: Float64Array;
  }>
): IBand {
  const longest = lines.reduce((a, b) => (b.x.length > a.x.length ? b : a));
  const { x, steps } = longest;
  const at = lines.map(() => 0);
  const [low, middle, high] = [0, 1, 2].map(() => new Float64Array(x.length));
  for (let row = 0; row < x.length; row++) {
    const values: number[] = [];
    lines.forEach((line, i) => {
      while (at[i] + 1 < line.x.length && line.x[at[i] + 1] <= x[row]) {
        at[i] += 1;
      }
      const value = line.y[at[i]];
      if (line.x.length && line.x[at[i]] <= x[row] && !Number.isNaN(value)) {
        values.push(value);
      }
    });
    values.sort((a, b) => a - b);
    low[row] = values.length ? values[0] : NaN;
    middle[row] = median(values);
    high[row] = values.length ? values[values.length - 1] : NaN;
  }
  return { x, steps, low, middle, high };
}

function median(sorted: number[]): number {
  const half = sorted.length >> 1;
  return sorted.length % 2
    ? sorted[half]
    : (sorted[half - 1] + sorted[half]) / 2;
}
