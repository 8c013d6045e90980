/** Horizontal axis of all charts: time, steps, tokens, or time since a run's start. */

import type { SeriesStore } from '../../series/store';
import type { IChart, ILine } from '../charts/chart';
import { interpolate, type Range } from './range';

export type AxisKind = 'step' | 'tokens' | 'time' | 'elapsed';

/** A sample of the job that the pointer can stand on. */
export interface ISample {
  /** On the axis. */
  x: number;
  time: number;
  step: number;
  /** NaN if unknown. */
  tokens: number;
}

/** Where rows and times are on the axis. */
export class Axis {
  constructor(
    readonly kind: AxisKind,
    private times: Float64Array,
    private steps: Float64Array,
    private tokens: Float64Array,
    /** Seconds since the start, without pauses; of runs that are compared. */
    private elapsed: Float64Array = new Float64Array()
  ) {}

  /** The axis asked for, or steps while tokens are not known. */
  static of(store: SeriesStore, wanted: AxisKind): Axis {
    const longest = store.sorted.reduce<Float64Array[]>(
      (most, { table }) =>
        table.length > (most[0]?.length ?? 0)
          ? [table.column('time_s'), table.column('step')]
          : most,
      []
    );
    const { job } = store;
    const [times, steps] = job.length
      ? [job.column('time_s'), job.column('step')]
      : longest.length
        ? longest
        : [new Float64Array(), new Float64Array()];
    const tokens = hasTokens(store)
      ? job.column('tokens')
      : new Float64Array(times.length).fill(NaN);
    const kind = wanted === 'tokens' && !hasTokens(store) ? 'step' : wanted;
    return new Axis(kind, times, steps, tokens);
  }

  get length(): number {
    return this.xs.length;
  }

  /** Positions of the job's samples. */
  get xs(): Float64Array {
    const { times: time, steps: step, tokens, elapsed } = this;
    return { time, step, tokens, elapsed }[this.kind];
  }

  sample(row: number): ISample {
    return {
      x: this.xs[row],
      time: this.times[row],
      step: this.steps[row],
      tokens: this.tokens[row]
    };
  }

  /** Position of a time; before the first and after the last sample, theirs. */
  ofTime(time: number): number {
    return this.kind === 'time'
      ? time
      : interpolate(this.times, this.xs, time, 'clamp');
  }

  /** Time of a position. */
  timeOf(x: number): number {
    return this.kind === 'time'
      ? x
      : interpolate(this.xs, this.times, x, 'clamp');
  }

  /** The steps of a range. */
  stepsOf([from, to]: Range): Range {
    const step = (x: number) => interpolate(this.xs, this.steps, x, 'clamp');
    return [step(from), step(to)];
  }

  /** The chart with everything on this axis. */
  place(chart: IChart): IChart {
    if (this.kind === 'time') {
      return chart;
    }
    return {
      ...chart,
      lines: chart.lines.map(line => this.placeLine(line)),
      breaks: chart.breaks?.map(one => ({
        ...one,
        time: this.ofTime(one.time)
      })),
      marks: chart.marks?.map(one => ({
        ...one,
        time_s: this.ofTime(one.time_s),
        end_s: one.end_s && this.ofTime(one.end_s)
      }))
    };
  }

  private placeLine(line: ILine): ILine {
    const { steps, times } = this;
    const x = line.steps
      ? this.kind === 'step'
        ? line.steps
        : line.steps.map(at => interpolate(steps, this.xs, at, 'extend'))
      : line.x.map(at => interpolate(times, this.xs, at, 'none'));
    return { ...line, ...known(x, line.y) };
  }
}

export function hasTokens(store: SeriesStore): boolean {
  const { job } = store;
  return job.length > 0 && !Number.isNaN(job.last('tokens'));
}

/** The points whose position is known. */
function known(x: Float64Array, y: Float64Array) {
  if (!x.some(Number.isNaN)) {
    return { x, y };
  }
  return {
    x: x.filter(at => !Number.isNaN(at)),
    y: y.filter((_, row) => !Number.isNaN(x[row]))
  };
}
