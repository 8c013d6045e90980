/** Range arithmetic of the horizontal axis. Pure; ranges are [from, to] in its units. */

export type Range = readonly [from: number, to: number];

/** What is shown, if not everything. */
export interface IZoom {
  range: Range;
  /** Whether it moves with the newest step, as wide as `range`. */
  follows: boolean;
}

/**
 * The value at `at` between samples; `xs` ascend. NaN without samples.
 *
 * Outside of the samples: 'clamp' = of the nearest one, 'extend' = along the nearest slope,
 * 'none' = NaN.
 */
export function interpolate(
  xs: Float64Array,
  ys: Float64Array,
  at: number,
  outside: 'clamp' | 'extend' | 'none'
): number {
  const last = xs.length - 1;
  if (last < 0 || Number.isNaN(at)) {
    return NaN;
  }
  if (at < xs[0] || at > xs[last]) {
    const end = at < xs[0] ? 0 : last;
    if (outside !== 'extend' || last === 0) {
      return outside === 'none' ? NaN : ys[end];
    }
  }
  const next = Math.min(Math.max(1, before(xs, at) + 1), last);
  if (last === 0) {
    return ys[0];
  }
  const width = xs[next] - xs[next - 1];
  const share = width > 0 ? (at - xs[next - 1]) / width : 1;
  return ys[next - 1] + share * (ys[next] - ys[next - 1]);
}

/** Index of the last sample at or before `at`; −1 if there is none. */
export function before(xs: ArrayLike<number>, at: number): number {
  let [low, high] = [0, xs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

/** Index of the sample nearest to `at`; −1 if there is none. */
export function nearest(xs: ArrayLike<number>, at: number): number {
  const left = before(xs, at);
  if (left < 0) {
    return xs.length ? 0 : -1;
  }
  const right = Math.min(left + 1, xs.length - 1);
  return at - xs[left] <= xs[right] - at ? left : right;
}

export function ordered(a: number, b: number): Range {
  return a <= b ? [a, b] : [b, a];
}

/** Moved by `distance`, but no end beyond those of `whole`. */
export function moved(
  [from, to]: Range,
  distance: number,
  whole: Range
): Range {
  const room = to - from;
  if (room >= whole[1] - whole[0]) {
    return whole;
  }
  const start = Math.min(Math.max(from + distance, whole[0]), whole[1] - room);
  return [start, start + room];
}

/** Within `whole`, and wide enough for two samples where there are two. */
export function widened(range: Range, xs: Float64Array, whole: Range): Range {
  const from = Math.max(range[0], whole[0]);
  const to = Math.min(range[1], whole[1]);
  const first = from === xs[before(xs, from)] ? 0 : 1;
  const inside = before(xs, to) - before(xs, from) - first + 1;
  if (inside >= 2 || xs.length < 2) {
    return [from, to];
  }
  const left = Math.min(nearest(xs, (from + to) / 2), xs.length - 2);
  return [Math.min(from, xs[left]), Math.max(to, xs[left + 1])];
}

/** The shown range: zoomed, following, or from `since` on. */
export function shownRange(
  zoom: IZoom | null,
  whole: Range,
  since: number
): Range {
  if (!zoom) {
    return [Math.max(whole[0], Math.min(since, whole[1])), whole[1]];
  }
  if (!zoom.follows) {
    return zoom.range;
  }
  const width = zoom.range[1] - zoom.range[0];
  return [Math.max(whole[0], whole[1] - width), whole[1]];
}

/** Position between the ends of a range, as pixels from `left`. */
export function pixelOf(
  x: number,
  [from, to]: Range,
  left: number,
  width: number
): number {
  return to > from ? left + ((x - from) / (to - from)) * width : left;
}

/** The position that stands at a pixel. */
export function valueAt(
  pixel: number,
  [from, to]: Range,
  left: number,
  width: number
): number {
  return width > 0 ? from + ((pixel - left) / width) * (to - from) : from;
}
