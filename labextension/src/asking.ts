/** Asks for something once, and again when told to. */

import * as React from 'react';

import { serverClock } from './clock';
import type { IProblem } from './problem';
import { problemOf } from './tokens';

export interface IAsking<T> {
  /** The last answer; `null` before the first. */
  answer: T | null;
  /** Unix time of that answer. */
  takenAt: number | null;
  /** Why the last request failed. */
  problem: IProblem | null;
  isAsking: boolean;
  again: () => void;
}

/** @param about what the answer depends on; when it changes, it asks again. */
export function useAsked<T>(
  ask: () => Promise<T>,
  about: ReadonlyArray<unknown>
): IAsking<T> {
  const [count, again] = React.useReducer((n: number) => n + 1, 0);
  const [state, setState] = React.useState<Omit<IAsking<T>, 'again'>>({
    answer: null,
    takenAt: null,
    problem: null,
    isAsking: true
  });
  React.useEffect(() => {
    let isOver = false;
    const told = (now: Partial<IAsking<T>>) =>
      !isOver && setState(before => ({ ...before, ...now }));
    told({ isAsking: true });
    ask()
      .then(answer =>
        told({ answer, takenAt: serverClock.now(), problem: null })
      )
      .catch(error => told({ answer: null, problem: problemOf(error) }))
      .finally(() => told({ isAsking: false }));
    return () => {
      isOver = true;
    };
  }, [...about, count]);
  return { ...state, again };
}
