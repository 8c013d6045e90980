/** Activity of every rank before the first step. */

import * as React from 'react';

import { Icon } from '../../icons';
import { activity, OVER, ranksOf, stateWord } from '../../words';
import type { IJobProps } from '../props';
import { trans } from '../../trans';

/** Number of ranks listed. */
const MOST_SHOWN = 64;

export function Starting({ job }: IJobProps): JSX.Element | null {
  if (OVER.has(job.state) || (job.numbers.step ?? 0) > 0) {
    return null;
  }
  const progress = new Map(job.progress?.map(one => [one.rank, one]));
  return (
    <ul className="mnt-starting">
      {ranksOf(job)
        .slice(0, MOST_SHOWN)
        .map(rank => (
          <li key={rank.rank}>
            <Icon name={rank.state} size={12} />{' '}
            <span className="b">{trans.__('rank %1', rank.rank)}</span>{' '}
            <span className="m">{rank.node}</span>{' '}
            {progress.has(rank.rank)
              ? activity(progress.get(rank.rank)!)
              : stateWord(rank.state)}
          </li>
        ))}
    </ul>
  );
}
