/** Reads a node's history repeatedly while somebody can see it. */

import * as React from 'react';

import type { IProblem } from '../problem';
import type { NodeHistory } from '../schema';
import { type IClusterModel, problemOf } from '../tokens';

/** About the width of a chart in pixels; both ends of 10 minutes, second by second. */
const POINTS = 601;

/** Not more often than this; else once per point. */
const LEAST_MS = 2000;

/** What is shown, in seconds; the finest values reach back an hour. */
export const SPANS = [600, 3600, 86_400, 604_800] as const;

export type Span = (typeof SPANS)[number];

/** Whether the tab can be seen. */
export class Seer {
  visible = true;
}

export interface IHistoryReading {
  /** `null` before the first read. */
  history: NodeHistory | null;
  problem: IProblem | null;
}

export function useHistory(
  model: IClusterModel,
  key: string,
  span: Span,
  seer: Seer
): IHistoryReading {
  const [answer, setAnswer] = React.useState<IHistoryReading>({
    history: null,
    problem: null
  });
  React.useEffect(() => {
    let isOver = false;
    let timer = 0;
    const read = async () => {
      if (!document.hidden && seer.visible) {
        try {
          const history = await model.api.nodeHistory(key, span, POINTS);
          if (!isOver) {
            setAnswer({ history, problem: null });
          }
        } catch (error) {
          if (!isOver) {
            setAnswer(old => ({ ...old, problem: problemOf(error) }));
          }
        }
      }
      if (!isOver) {
        const pause = Math.max(LEAST_MS, (1000 * span) / POINTS);
        timer = window.setTimeout(read, Math.min(pause, 60_000));
      }
    };
    setAnswer({ history: null, problem: null });
    void read();
    return () => {
      isOver = true;
      window.clearTimeout(timer);
    };
  }, [model, key, span, seer]);
  return answer;
}
