/** A chart as data: lines, scale and formats. */

import { ABSENT, type Maybe, type NonFinite } from '../../formats';
import type { EventMark, JobEntry } from '../../schema';
import type { SeriesStore } from '../../series/store';
import type { Table } from '../../series/table';
import type { ITheme } from './theme';

export interface ILine {
  key: string;
  label: string;
  x: Float64Array;
  y: Float64Array;
  /** Steps of the points, where they are steps. */
  steps?: Float64Array;
  /** Seconds of each point, where it is a rate: a mean of rates is over time. */
  seconds?: Float64Array;
  /** The recent figure, for the label while nothing is pointed at. */
  now?: number | null;
  color: string;
  dash: number[];
  width: number;
  /** Default: 1. */
  opacity?: number;
  /** Filled down to zero. */
  isFilled?: boolean;
  /** Filled up to this other line. */
  fillTo?: string;
  fillKind?: 'band' | 'hatch';
  /** With markers: for ranks 4 to 7, which repeat colors, and for evaluations. */
  isMarked?: boolean;
  /** Not drawn across unknown values, which have no reading either. */
  keepsGaps?: boolean;
  /** Without a label. */
  isQuiet?: boolean;
}

export interface IChart {
  key: string;
  title: string;
  subtitle: string;
  lines: ILine[];
  format: (value: number) => string;
  /** Format of an axis value; `step` is the distance between ticks. */
  tick: (value: number, step: number) => string;
  /** Zero in the middle, one direction above and one below. */
  isMirrored?: boolean;
  /** Ends of the axis, if not taken from the lines; of a mirrored one, the upper. */
  limit?: number;
  range?: [number, number];
  /** Times without any value, shaded. */
  gaps?: [from: number, to: number][];
  /** Horizontal lines, such as the capacity; dashed ones belong on the scale. */
  levels?: { at: number; label: string; value?: string; isDashed?: boolean }[];
  /** Values that are NaN or infinite, oldest first. */
  breaks?: { time: number; line: string; label: string }[];
  /** Events, oldest first: vertical lines, shaded until their end. */
  marks?: EventMark[];
  /** Whether the events are named: on the first chart only. */
  namesMarks?: boolean;
  /** Red text next to the title: the number of NaN or infinite values. */
  alarm?: string;
  /** Text shown if there are no lines. */
  note?: string;
  height: number;
}

export interface IChoice {
  /** The rank shown alone; `null` = the slowest of many, or all of few. */
  rank: number | null;
  /** The node whose link is shown if there are more than two. */
  node: string | null;
}

/** Input of every chart. */
export interface IChartInput {
  store: SeriesStore;
  job: JobEntry;
  theme: ITheme;
  choice: IChoice;
}

/** Decimals that tell values `step` apart, in percent. */
export function shareDigits(step: number): number {
  return step >= 0.00999 ? 0 : step >= 0.000999 ? 1 : 2;
}

export function hasValues(values: Float64Array): boolean {
  return values.some(value => !Number.isNaN(value));
}

/** Shown instead of lines: why a figure of the job is not known. */
/** Why nothing is drawn, in a sentence instead of an empty frame. */
export function emptyNote(
  lines: ReadonlyArray<ILine>,
  store: SeriesStore,
  figure: string
): string | undefined {
  const isDrawn = lines.some(line => line.y.some(Number.isFinite));
  return isDrawn ? undefined : absentNote(store, figure);
}

export function absentNote(store: SeriesStore, figure: string): string {
  const reason = store.summary?.missing?.[figure];
  return reason ? `${ABSENT}: ${reason}` : ABSENT;
}

/** Seconds from each of these times to the next; those to the first one are not known. */
export function secondsTo(times: Float64Array): Float64Array {
  return times.map((time, at) =>
    at > 0 ? time - times[at - 1] : times[1] - times[0]
  );
}

/** A column of a table as a line. NaN and infinity are its breaks, not its recent figure. */
export function tableLine<Name extends string>(
  table: Table<Name | 'time_s' | 'step'>,
  column: Name,
  now: Maybe | NonFinite,
  style: Omit<ILine, 'x' | 'y' | 'steps' | 'now'>
): ILine {
  return {
    ...style,
    x: table.column('time_s'),
    y: table.column(column),
    steps: table.column('step'),
    now: typeof now === 'string' ? undefined : now
  };
}
