/** Reads a job's log repeatedly while the job runs. */

import * as React from 'react';

import type { IProblem } from '../problem';
import type { JobLog } from '../schema';
import { type IClusterModel, problemOf } from '../tokens';
import { OVER } from '../words';
import type { IQuery } from './controls';

const EVERY_MS = 2000;
const HIDDEN_EVERY_MS = 10_000;

export interface IReading {
  /** `null` before the first read. */
  log: JobLog | null;
  /** Why the last read failed. */
  problem: IProblem | null;
}

export function useLog(
  model: IClusterModel,
  jobId: string,
  query: IQuery
): IReading {
  const { rank, tail, search, isFollowing } = query;
  const [log, setLog] = React.useState<JobLog | null>(null);
  const [problem, setProblem] = React.useState<IProblem | null>(null);
  const state = model.job(jobId)?.state;
  React.useEffect(() => {
    let isOver = false;
    let timer = 0;
    const read = async () => {
      try {
        const read = await model.api.log(jobId, { rank, tail, search });
        if (!isOver) {
          setLog(read);
          setProblem(null);
        }
      } catch (error) {
        if (!isOver) {
          setProblem(problemOf(error));
        }
      }
      const ended = OVER.has(model.job(jobId)?.state ?? '');
      if (!isOver && isFollowing && !ended) {
        timer = window.setTimeout(
          read,
          document.hidden ? HIDDEN_EVERY_MS : EVERY_MS
        );
      }
    };
    void read();
    return () => {
      isOver = true;
      window.clearTimeout(timer);
    };
  }, [jobId, rank, tail, search, isFollowing, state]);
  return { log, problem };
}
