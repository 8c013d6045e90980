/** Asks a job's ranks for their stacks: once, and again when told to. */

import * as React from 'react';

import type { IProblem } from '../problem';
import type { ShownStacks } from '../schema';
import { type IClusterModel, problemOf } from '../tokens';

export interface IAsking {
  /** The last answer; `null` before the first. */
  stacks: ShownStacks | null;
  /** Unix time of that answer. */
  takenAt: number | null;
  /** Why the last request failed. */
  problem: IProblem | null;
  isAsking: boolean;
  again: () => void;
}

export function useStacks(
  model: IClusterModel,
  jobId: string,
  rank: number | undefined
): IAsking {
  const [count, again] = React.useReducer((n: number) => n + 1, 0);
  const [answer, setAnswer] = React.useState<Omit<IAsking, 'again'>>({
    stacks: null,
    takenAt: null,
    problem: null,
    isAsking: true
  });
  React.useEffect(() => {
    let isOver = false;
    const told = (now: Partial<IAsking>) =>
      !isOver && setAnswer(before => ({ ...before, ...now }));
    told({ isAsking: true });
    model.api
      .stacks(jobId, rank)
      .then(stacks =>
        told({ stacks, takenAt: Date.now() / 1000, problem: null })
      )
      .catch(error => told({ stacks: null, problem: problemOf(error) }))
      .finally(() => told({ isAsking: false }));
    return () => {
      isOver = true;
    };
  }, [model, jobId, rank, count]);
  return { ...answer, again };
}
