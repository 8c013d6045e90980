/** Bars of a step: where each span of its ranks is drawn. */

import type { ShownStep, StepSpan } from '../../schema';

export type SpanKind = StepSpan['kind'];

export const LANE = 20;
export const LINK = 4;

/** Of a rank: what it computes, its messages in two thin lanes, and a gap. */
export const ROW = LANE + 2 * (LINK + 2) + 8;

/** The time axis that all steps of a picture share, from 0 to `end` seconds. */
export interface ITimeAxis {
  left: number;
  right: number;
  end: number;
}

export interface IBar {
  span: StepSpan;
  /** Row of the rank. */
  row: number;
  x: number;
  /** Below the top of its row. */
  y: number;
  width: number;
  height: number;
}

export function place(time: number, { left, right, end }: ITimeAxis): number {
  const share = Math.min(1, Math.max(0, time / end));
  return left + share * (right - left);
}

/** A bar for each span; none reaches beyond the axis. */
export function barsOf({ spans }: ShownStep, axis: ITimeAxis): IBar[] {
  if (!(axis.end > 0)) {
    return [];
  }
  return spans.ranks.flatMap((rank, row) =>
    rank.map(span => {
      const x = place(span.begin_s, axis);
      const width = place(span.end_s, axis) - x;
      return { span, row, x, width, ...laneOf(span.kind) };
    })
  );
}

export function laneOf(kind: SpanKind): { y: number; height: number } {
  switch (kind) {
    case 'send':
      return { y: LANE + 2, height: LINK };
    case 'receive':
      return { y: LANE + LINK + 4, height: LINK };
    default:
      return { y: 0, height: LANE };
  }
}

/** Times at about `most` round places of the axis, from 0 on. */
export function timeTicks(end: number, most: number): number[] {
  if (!(end > 0)) {
    return [];
  }
  const least = end / Math.max(1, most);
  const ten = 10 ** Math.floor(Math.log10(least));
  const step = ten * ([1, 2, 5].find(n => n * ten >= least) ?? 10);
  const count = Math.floor(end / step + 1e-9) + 1;
  return Array.from({ length: count }, (_, i) => i * step);
}
