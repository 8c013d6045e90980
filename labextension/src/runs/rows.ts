/** Rows of the list: a run, and below it its jobs where it is open. Pure. */

import type { JobEntry } from '../schema';
import type { IRun } from './run';

export interface IRow {
  /** Of the run, or of the job below it. */
  key: string;
  run: IRun;
  /** Set below a run. */
  job?: JobEntry;
  isLast?: boolean;
}

export function rowsOf(
  runs: ReadonlyArray<IRun>,
  opened: ReadonlySet<string>
): IRow[] {
  return runs.flatMap(run => [
    { key: run.id, run },
    ...(opened.has(run.id) && run.jobs.length > 1
      ? run.jobs.map((job, i) => ({
          key: `${run.id}/${job.job_id}`,
          run,
          job,
          isLast: i === run.jobs.length - 1
        }))
      : [])
  ]);
}

/** Height of a compact row, in pixels: all have it, so that the list need not hold each. */
export const COMPACT_PX = 29;

/** With more rows than this, only those that can be seen are in the page. */
export const MOST_IN_PAGE = 100;

/** Rows kept above and below those that can be seen. */
const SPARE = 10;

/** First and last row (exclusive) of a viewport scrolled to `top`. */
export function inView(
  rows: number,
  top: number,
  height: number
): readonly [from: number, to: number] {
  const first = Math.floor(top / COMPACT_PX) - SPARE;
  const last = Math.ceil((top + height) / COMPACT_PX) + SPARE;
  return [Math.min(Math.max(0, first), rows), Math.min(rows, last)];
}

/** Where to scroll so that a row can be seen. */
export function scrolledTo(row: number, top: number, height: number): number {
  const at = row * COMPACT_PX;
  return at < top ? at : Math.max(top, at + COMPACT_PX - height);
}
