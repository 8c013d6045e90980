/** Chips of states: one at a time; their counts follow the search and the lists. */

import * as React from 'react';

import { serverClock } from '../clock';
import * as formats from '../formats';
import { Icon } from '../icons';
import { trans } from '../trans';
import { stateWord } from '../words';
import { type Filter, filtersOf, type IQuery, leftRuns } from './query';
import type { IRun } from './run';

export function Chips(props: {
  runs: ReadonlyArray<IRun>;
  query: IQuery;
  change: (query: Partial<IQuery>) => void;
}): JSX.Element {
  const { runs, query, change } = props;
  const now = serverClock.now();
  const found = leftRuns(runs, { ...query, filter: null }, now);
  const offered = filtersOf(found);
  const { filter } = query;
  const shown: (readonly [Filter, number])[] =
    filter && !offered.some(([one]) => one === filter)
      ? [...offered, [filter, 0]]
      : offered;
  return (
    <div className="mnt-chips" role="group" aria-label={trans.__('Show')}>
      <Chip
        label={trans.__('All')}
        count={found.length}
        isPressed={filter === null}
        run={() => change({ filter: null })}
      />
      {shown.map(([one, count]) => (
        <Chip
          key={one}
          icon={one === 'resumable' ? undefined : one}
          label={filterWord(one)}
          count={count}
          isPressed={filter === one}
          run={() => change({ filter: filter === one ? null : one })}
        />
      ))}
    </div>
  );
}

export function filterWord(filter: Filter): string {
  return filter === 'resumable' ? trans.__('resumable') : stateWord(filter);
}

function Chip(props: {
  label: string;
  count: number;
  icon?: Exclude<Filter, 'resumable'>;
  isPressed: boolean;
  run: () => void;
}): JSX.Element {
  const { label, count, icon, isPressed, run } = props;
  return (
    <button className="mnt-chip" aria-pressed={isPressed} onClick={run}>
      {icon && <Icon name={icon} size={12} />}
      {label} <span>{formats.count(count)}</span>
    </button>
  );
}
