/** Reads a node's history repeatedly while somebody can see it. */

import * as React from 'react';

import type { IProblem } from '../problem';
import type { NodeHistory } from '../schema';
import { type IClusterModel, problemOf } from '../tokens';

/** Shortest time between reads; otherwise once per point. */
const LEAST_MS = 2000;

const MOST_MS = 60_000;

/** What is shown, in seconds; the finest values reach back an hour. */
export const SPANS = [600, 3600, 86_400, 604_800] as const;

export type Span = (typeof SPANS)[number];

/** Whether the tab can be seen. */
export class Seer {
  visible = true;
}

/** What is read of a node. */
export interface IWanted {
  /** The node's. */
  key: string;
  /** Seconds until now. */
  span: number;
  points: number;
}

export interface IHistoryReading {
  /** `null` before the first read. */
  history: NodeHistory | null;
  /** When it was read, by `performance.now()`. */
  readMs: number;
  problem: IProblem | null;
}

const NOTHING: IHistoryReading = { history: null, readMs: 0, problem: null };

/** @param isSeen whether it is worth asking now. */
export function useHistory(
  model: IClusterModel,
  { key, span, points }: IWanted,
  isSeen: () => boolean
): IHistoryReading {
  const [answer, setAnswer] = React.useState(NOTHING);
  const look = React.useRef(isSeen);
  look.current = isSeen;
  React.useEffect(() => {
    let isOver = false;
    let timer = 0;
    const read = async () => {
      const mayAsk = !document.hidden && look.current();
      if (mayAsk) {
        try {
          const history = await model.api.nodeHistory(key, span, points);
          if (!isOver) {
            setAnswer({ history, readMs: performance.now(), problem: null });
          }
        } catch (error) {
          if (!isOver) {
            setAnswer(old => ({ ...old, problem: problemOf(error) }));
          }
        }
      }
      if (!isOver) {
        const perPoint = mayAsk ? (1000 * span) / points : 0;
        const pause = Math.min(Math.max(LEAST_MS, perPoint), MOST_MS);
        timer = window.setTimeout(read, pause);
      }
    };
    setAnswer(NOTHING);
    void read();
    return () => {
      isOver = true;
      window.clearTimeout(timer);
    };
  }, [model, key, span, points]);
  return answer;
}
