/** Activity of every rank before the first step. */

import * as React from 'react';

import * as formats from '../../formats';
import { Icon } from '../../icons';
import { OVER, stateWord } from '../../words';
import type { IJobProps } from '../props';

/** Number of ranks listed. */
const MOST_SHOWN = 64;

export function Starting({ job, trans }: IJobProps): JSX.Element | null {
  if (OVER.has(job.state) || (job.numbers.step ?? 0) > 0) {
    return null;
  }
  return (
    <ul className="mnt-starting">
      {job.ranks.slice(0, MOST_SHOWN).map(rank => (
        <li key={rank.rank}>
          <Icon name={rank.state} size={12} />{' '}
          <span className="b">{trans.__('rank %1', rank.rank)}</span>{' '}
          <span className="m">{rank.node}</span>{' '}
          {rank.activity ?? stateWord(rank.state, trans)}
          {typeof rank.progress === 'number' &&
            `, ${formats.percent(rank.progress, 0)}`}
        </li>
      ))}
    </ul>
  );
}
