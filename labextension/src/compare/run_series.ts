/** Rows of a run: those of its jobs, one after the other. Pure. */

import { Axis, type AxisKind } from '../liveview/axis/axis';
import { type LaneEvent, laneEvents } from '../liveview/stack/events';
import type { JobTable, SeriesStore } from '../series/store';
import type { IBreak } from '../series/table';

const COLUMNS = ['time_s', 'step', 'tokens', 'tokens_per_s', 'loss'] as const;

export type RunColumn = (typeof COLUMNS)[number] | 'elapsed';

export interface IRunSeries {
  /** Of equal length. */
  columns: Record<RunColumn, Float64Array>;
  /** Losses that are NaN or infinite. */
  breaks: ReadonlyArray<IBreak>;
  events: LaneEvent[];
  /** Lowest loss of an evaluation; NaN if there was none. */
  bestEvaluation: number;
}

/**
 * Rows of a run's jobs, oldest job first.
 *
 * A step that was repeated after a resume is that of the later job; `elapsed` are the seconds since
 * the start, without the pauses between jobs.
 */
export function joined(stores: ReadonlyArray<SeriesStore>): IRunSeries {
  const columns = Object.fromEntries(
    [...COLUMNS, 'elapsed' as const].map(name => [name, [] as number[]])
  ) as Record<RunColumn, number[]>;
  let begun = 0;
  keptRows(stores).forEach(([job, rows]) => {
    const times = job.column('time_s');
    for (let row = 0; row < rows; row++) {
      COLUMNS.forEach(name => columns[name].push(job.column(name)[row]));
      columns.elapsed.push(begun + times[row] - times[0]);
    }
    if (rows > 0) {
      const pace = rows > 1 ? times[1] - times[0] : 0;
      begun += times[rows - 1] - times[0] + pace;
    }
  });
  const evaluated = stores.flatMap(store => [
    ...store.evaluation.column('loss').filter(Number.isFinite)
  ]);
  return {
    columns: Object.fromEntries(
      Object.entries(columns).map(([name, all]) => [
        name,
        Float64Array.from(all)
      ])
    ) as Record<RunColumn, Float64Array>,
    breaks: stores.flatMap(({ job }) =>
      job.breaks.filter(one => one.name === 'loss')
    ),
    events: stores.flatMap(laneEvents),
    bestEvaluation: evaluated.length ? Math.min(...evaluated) : NaN
  };
}

/** Each job's rows, and how many of them come before what later jobs repeated. */
function keptRows(
  stores: ReadonlyArray<SeriesStore>
): (readonly [JobTable, number])[] {
  let next = Infinity;
  return [...stores]
    .reverse()
    .map(({ job }) => {
      const rows = job.column('step').filter(step => step < next).length;
      next = rows ? job.column('step')[0] : next;
      return [job, rows] as const;
    })
    .reverse();
}

/** Positions of a run's rows and events on an axis. */
export function axisOf({ columns }: IRunSeries, kind: AxisKind): Axis {
  const { time_s, step, tokens, elapsed } = columns;
  return new Axis(kind, time_s, step, tokens, elapsed);
}

/** An axis with the rows of all these runs, for the pointer. */
export function sharedAxis(
  runs: ReadonlyArray<IRunSeries>,
  kind: AxisKind
): Axis {
  const all = new Set(
    runs.flatMap(run => [...axisOf(run, kind).xs].filter(Number.isFinite))
  );
  const xs = Float64Array.from(all).sort();
  return new Axis(kind, xs, xs, xs, xs);
}

/** Axes on which runs can be compared. */
export function axisKinds(runs: ReadonlyArray<IRunSeries>): AxisKind[] {
  const knowTokens = runs.every(({ columns: { tokens } }) =>
    tokens.every(Number.isFinite)
  );
  return ['step', ...(knowTokens ? (['tokens'] as const) : []), 'elapsed'];
}
