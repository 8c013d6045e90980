/** Which runs a list shows, and in which order. Pure. */

import { inOrder, type SortValue } from '../liveview/tables/order';
import type { JobEntry } from '../schema';
import { type JobState, stateWord } from '../words';
import { lossOf } from './loss_line';
import {
  durationOf,
  type IRun,
  isResumable,
  nodesOf,
  nodesText,
  programsOf,
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

/** What narrows the list; `null` does not. */
export interface INarrowing {
  search: string;
  filter: Filter | null;
  /** A node of one of its jobs. */
  node: string | null;
  /** What one of its jobs ran. */
  program: string | null;
  /** The most seconds since its newest job started. */
  age: number | null;
}

export interface IQuery extends INarrowing {
  sort: { column: ColumnName; isDown: boolean };
}

export const WIDEST: INarrowing = {
  search: '',
  filter: null,
  node: null,
  program: null,
  age: null
};

export const FIRST_QUERY: IQuery = {
  ...WIDEST,
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

/** The runs that match all of this. */
export function leftRuns(
  runs: ReadonlyArray<IRun>,
  { search, filter, node, program, age }: INarrowing,
  now: number
): IRun[] {
  const wanted = search.trim().toLowerCase();
  return runs.filter(
    run =>
      (!wanted || run.jobs.some(job => holds(job, wanted))) &&
      isOf(run, filter) &&
      (node === null || nodesOf(run).includes(node)) &&
      (program === null || programsOf(run).includes(program)) &&
      (age === null || now - startedAt(run.newest) <= age)
  );
}

/** What narrows the list, each with the number of runs that it alone excludes. */
export function narrowings(
  runs: ReadonlyArray<IRun>,
  query: INarrowing,
  now: number
): { name: keyof INarrowing; excluded: number }[] {
  return (Object.keys(WIDEST) as (keyof INarrowing)[])
    .filter(name => query[name] !== WIDEST[name])
    .map(name => {
      const alone = { ...WIDEST, [name]: query[name] };
      const left = leftRuns(runs, alone, now).length;
      return { name, excluded: runs.length - left };
    });
}

/** Whether it is in name, id, note, nodes, command or person. */
function holds(job: JobEntry, wanted: string): boolean {
  const { job_id, run, name, note, entry, submitted_by } = job;
  const nodes = job.placements.map(place => place.node);
  const words = [job_id, run, name, note, submitted_by, ...nodes, ...entry];
  return words.some(word => word?.toLowerCase().includes(wanted));
}

/** How many runs match each filter; filters without matches are not offered. */
export function filtersOf(
  runs: ReadonlyArray<IRun>
): (readonly [Filter, number])[] {
  return [...STATES, 'resumable' as const]
    .map(
      filter => [filter, runs.filter(run => isOf(run, filter)).length] as const
    )
    .filter(([, count]) => count > 0);
}

function isOf(run: IRun, filter: Filter | null): boolean {
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
  const left = leftRuns(runs, query, now);
  return inOrder(left, run => valueOf(run, column, now), isDown);
}

/** The next order when a column's head is clicked. */
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
  const { tokens_per_s, mfu } = newest.numbers;
  const loss = lossOf(newest);
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
