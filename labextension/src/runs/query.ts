/** Which runs a list shows, and in which order. Pure. */

import { inOrder, type SortValue } from '../liveview/tables/order';
import type { JobEntry } from '../schema';
import { type JobState, stateWord } from '../words';
import {
  durationOf,
  type IRun,
  isResumable,
  nodesText,
  startedAt,
  stepOf
} from './run';

export type ColumnName =
  | 'state'
  | 'name'
  | 'started'
  | 'duration'
  | 'nodes'
  | 'step'
  | 'throughput'
  | 'mfu'
  | 'loss';

/** One state, or what can go on: that crosses states. */
export type Filter = JobState | 'resumable';

export interface IQuery {
  search: string;
  filter: Filter | null;
  sort: { column: ColumnName; isDown: boolean };
}

export const FIRST_QUERY: IQuery = {
  search: '',
  filter: null,
  sort: { column: 'started', isDown: true }
};

/** In the order of their chips. */
const STATES: ReadonlyArray<JobState> = [
  'unknown',
  'stopping',
  'starting',
  'running',
  'pending',
  'succeeded',
  'canceled',
  'failed'
];

/** Columns that begin with their highest value. */
const DOWN_FIRST = new Set<ColumnName>([
  'started',
  'duration',
  'step',
  'throughput',
  'mfu'
]);

/** The runs with this text in name, id, note, nodes, command or person of one of their jobs. */
export function foundRuns(runs: ReadonlyArray<IRun>, search: string): IRun[] {
  const wanted = search.trim().toLowerCase();
  return runs.filter(
    run => !wanted || run.jobs.some(job => holds(job, wanted))
  );
}

function holds(job: JobEntry, wanted: string): boolean {
  const { job_id, run, name, note, entry, submitted_by } = job;
  const nodes = job.placements.map(place => place.node);
  const words = [job_id, run, name, note, submitted_by, ...nodes, ...entry];
  return words.some(word => word?.toLowerCase().includes(wanted));
}

/** How many of the runs each filter leaves; filters that leave none are not offered. */
export function filtersOf(
  runs: ReadonlyArray<IRun>
): (readonly [Filter, number])[] {
  return [...STATES, 'resumable' as const]
    .map(
      filter =>
        [filter, runs.filter(run => passes(run, filter)).length] as const
    )
    .filter(([, count]) => count > 0);
}

export function passes(run: IRun, filter: Filter | null): boolean {
  return (
    filter === null ||
    (filter === 'resumable' ? isResumable(run) : run.newest.state === filter)
  );
}

/** The runs that are shown, in their order. */
export function shownRuns(
  runs: ReadonlyArray<IRun>,
  query: IQuery,
  now: number
): IRun[] {
  const { column, isDown } = query.sort;
  const found = foundRuns(runs, query.search).filter(run =>
    passes(run, query.filter)
  );
  return inOrder(found, run => valueOf(run, column, now), isDown);
}

/** The next order once a column's head is pressed. */
export function sortedBy(
  { column, isDown }: IQuery['sort'],
  pressed: ColumnName
): IQuery['sort'] {
  return column === pressed
    ? { column, isDown: !isDown }
    : { column: pressed, isDown: DOWN_FIRST.has(pressed) };
}

function valueOf(run: IRun, column: ColumnName, now: number): SortValue {
  const { newest, jobs } = run;
  const { loss, tokens_per_s, mfu } = newest.numbers;
  switch (column) {
    case 'state':
      return stateWord(newest.state);
    case 'name':
      return newest.name;
    case 'started':
      return startedAt(newest);
    case 'duration':
      return durationOf(jobs, now);
    case 'nodes':
      return nodesText(newest);
    case 'step':
      return stepOf(jobs);
    case 'throughput':
      return tokens_per_s;
    case 'mfu':
      return mfu;
    case 'loss':
      return typeof loss === 'number' ? loss : null;
  }
}
