/** Places on the shared axis: under a pixel, at a sample, after a key. */

import { before, moved, nearest, valueAt } from '../axis/range';
import type { IPointable } from './pointing';

/** The place at a pixel, inside what is shown. */
export function xAt(
  px: number,
  { area, span }: Pick<IPointable, 'area' | 'span'>
): number {
  const inside = Math.min(Math.max(px, area.left), area.left + area.width);
  return valueAt(inside, span, area.left, area.width);
}

/** The nearest sample of those that are shown. */
export function nearestShown(
  x: number,
  { axis, span }: Pick<IPointable, 'axis' | 'span'>
): number {
  const first = before(axis.xs, span[0] - 1e-9) + 1;
  const last = before(axis.xs, span[1]);
  const row = nearest(axis.xs, x);
  return last < first ? row : Math.min(Math.max(row, first), last);
}

/** The sample that a key goes to from `row`; `null` if the key goes nowhere. */
export function rowAfter(
  key: string,
  row: number,
  given: Pick<IPointable, 'axis' | 'span'>
): number | null {
  const { axis, span } = given;
  const last = axis.length - 1;
  if (last < 0) {
    return null;
  }
  const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1 };
  if (key in steps) {
    const next = row < 0 ? nearestShown(span[1], given) : row + steps[key];
    return Math.min(Math.max(next, 0), last);
  }
  const ends: Record<string, number> = { Home: span[0], End: span[1] };
  return key in ends ? nearestShown(ends[key], given) : null;
}

/** Move the range if the sample is outside of it. */
export function reveal(
  x: number,
  { isZoomed, span, whole, zoom }: IPointable
): void {
  const beyond = x < span[0] ? x - span[0] : x > span[1] ? x - span[1] : 0;
  if (isZoomed && beyond) {
    zoom({ range: moved(span, beyond, whole), follows: false });
  }
}
