/** The line of a run's losses next to its last one. */

import * as React from 'react';

import type { JobEntry } from '../schema';
import { type IRoom, lossPath, lossWords } from './loss_line';

const ROOM: IRoom = { width: 50, height: 14 };

/** Room of half a line around it. */
const EDGE = 1;

export function Sparkline({
  jobs
}: {
  jobs: ReadonlyArray<JobEntry>;
}): JSX.Element | null {
  const path = lossPath(jobs, ROOM);
  const words = lossWords(jobs);
  const [width, height] = [ROOM.width + 2 * EDGE, ROOM.height + 2 * EDGE];
  return path ? (
    <svg
      className="mnt-sparkline"
      role="img"
      aria-label={words}
      {...{ width, height }}
      viewBox={`${-EDGE} ${-EDGE} ${width} ${height}`}
    >
      <title>{words}</title>
      <path d={path} />
    </svg>
  ) : null;
}
