/** One chart as data: its lines, its scale, and how its numbers are written. */

import type { TranslationBundle } from '@jupyterlab/translation';

import { ABSENT } from '../../formats';
import type { JobEntry } from '../../schema';
import type { SeriesStore } from '../../series/store';
import type { ITheme } from './theme';

export interface ILine {
  key: string;
  label: string;
  x: Float64Array;
  y: Float64Array;
  /** The recent figure: what the label says while nothing is pointed at. */
  now?: number | null;
  color: string;
  dash: number[];
  width: number;
  /** Filled to zero with the line's own color. */
  isFilled?: boolean;
  /** Filled up to this other line: plain, or hatched. */
  fillTo?: string;
  fillKind?: 'band' | 'hatch';
  /** Points drawn on it: ranks 4 to 7 repeat colors, and evaluations are few. */
  isMarked?: boolean;
  /** Drawn, but without a label. */
  isQuiet?: boolean;
}

export interface IChart {
  key: 'throughput' | 'mfu' | 'links' | 'compute' | 'loss';
  title: string;
  subtitle: string;
  lines: ILine[];
  format: (value: number) => string;
  /** A value on the axis; `step` is the distance to the next one. */
  tick: (value: number, step: number) => string;
  /** Zero in the middle: one direction above, the other below. */
  isMirrored?: boolean;
  /** Highest and lowest value of the scale, where they do not follow the lines. */
  limit?: number;
  /** Drawn across: the capacity. */
  levels?: { at: number; label: string }[];
  /** Values that are NaN or infinite, oldest first: when, on which line, and how that is written. */
  breaks?: { time: number; line: string; label: string }[];
  /** Said in red beside the title: how many values are NaN or infinite. */
  alarm?: string;
  /** Said instead of the lines, where there are none. */
  note?: string;
  height: number;
}

export interface IChoice {
  /** The rank shown by itself; `null` = the slowest of many, all of few. */
  rank: number | null;
  /** The node whose link is shown, where there are more than two. */
  node: string | null;
}

/** What every chart is made from. */
export interface IChartInput {
  store: SeriesStore;
  job: JobEntry;
  theme: ITheme;
  choice: IChoice;
  trans: TranslationBundle;
}

/** Digits that tell values this far apart from each other, in percent. */
export function shareDigits(step: number): number {
  return step >= 0.00999 ? 0 : step >= 0.000999 ? 1 : 2;
}

export function hasValues(values: Float64Array): boolean {
  return values.some(value => !Number.isNaN(value));
}

/** Said instead of lines: why a figure of the job is not known. */
export function absentNote(store: SeriesStore, figure: string): string {
  const reason = store.summary?.missing?.[figure];
  return reason ? `${ABSENT}: ${reason}` : ABSENT;
}
