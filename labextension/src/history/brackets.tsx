/** Brackets above the charts: when jobs ran on the node. */

import * as React from 'react';

import { pixelOf, type Range } from '../liveview/axis/range';
import type { IArea } from '../liveview/stack/overlay';
import type { HistoryJob } from '../schema';
import { trans } from '../trans';

/** Rows of jobs that ran at the same time; more are not drawn. */
const MOST_ROWS = 4;

/** Below this many pixels a bracket has no text; its title has all of it. */
const LEAST_TEXT = 48;

export interface IBracket {
  job: HistoryJob;
  from: number;
  to: number;
  /** 0 is the lowest. */
  row: number;
}

/** Jobs within a time, those that overlap in different rows. Pure. */
export function brackets(
  jobs: ReadonlyArray<HistoryJob>,
  [begin, end]: Range
): IBracket[] {
  const ends: number[] = [];
  return jobs.flatMap(job => {
    const from = Math.max(begin, job.begin_s);
    const to = Math.min(end, job.end_s ?? end);
    if (to < from) {
      return [];
    }
    const free = ends.findIndex(one => one <= from);
    const row = free < 0 ? ends.length : free;
    ends[row] = to;
    return row < MOST_ROWS ? [{ job, from, to, row }] : [];
  });
}

export function bracketText(job: HistoryJob): string {
  return trans._n(
    '%2, rank %3',
    '%2, ranks %3',
    job.ranks.length,
    job.name,
    job.ranks.join(', ')
  );
}

export function Brackets(props: {
  jobs: ReadonlyArray<HistoryJob>;
  span: Range;
  area: IArea;
  open: (jobId: string) => void;
}): JSX.Element {
  const { jobs, span, area, open } = props;
  const shown = brackets(jobs, span);
  const rows = Math.max(0, ...shown.map(one => one.row + 1));
  const place = (x: number) => pixelOf(x, span, area.left, area.width);
  return (
    <ul
      className="mnt-brackets"
      aria-label={trans.__('Jobs')}
      style={{ height: 26 * rows }}
    >
      {shown.map(({ job, from, to, row }) => {
        const width = Math.max(2, place(to) - place(from));
        return (
          <li
            key={job.job_id}
            className={job.end_s ? '' : 'mnt-open-end'}
            style={{ left: place(from), width, bottom: 26 * row }}
          >
            <button
              title={`${bracketText(job)}, ${job.job_id}, ${job.state}`}
              aria-label={bracketText(job)}
              onClick={() => open(job.job_id)}
            >
              {width >= LEAST_TEXT && bracketText(job)}
            </button>
          </li>
        );
      })}
    </ul>
  );
}
