/** Head of the list: how many runs there are, the search field and the filters. */

import * as React from 'react';

import { Button } from '../controls';
import * as formats from '../formats';
import { Icon } from '../icons';
import { trans } from '../trans';
import { OVER, stateWord } from '../words';
import { type Filter, filtersOf, foundRuns, type IQuery } from './query';
import type { IRun } from './run';

export interface IHeadProps {
  runs: ReadonlyArray<IRun>;
  query: IQuery;
  change: (query: Partial<IQuery>) => void;
  field: React.RefObject<HTMLInputElement>;
  isCompact: boolean;
  /** Whether so many rows are shown that all are compact. */
  isLong: boolean;
  setCompact: (isCompact: boolean) => void;
}

export function Head(props: IHeadProps): JSX.Element {
  const { runs, query, change, field, isCompact, isLong, setCompact } = props;
  const running = runs.filter(run => !OVER.has(run.newest.state)).length;
  const count = formats.count(runs.length);
  return (
    <header className="mnt-runs-top">
      <div className="row">
        <h2>{trans.__('Runs')}</h2>
        <span className="m s" role="status">
          {running
            ? trans.__('%1 runs, %2 not ended', count, running)
            : trans._n('%2 run', '%2 runs', runs.length, count)}
        </span>
        <span className="sp" />
        <input
          ref={field}
          type="search"
          className="mnt-runs-search"
          placeholder={trans.__('Name, note, id, node, command')}
          aria-label={trans.__('Search runs')}
          value={query.search}
          onChange={event => change({ search: event.currentTarget.value })}
          onKeyDown={event =>
            event.key === 'Escape' && query.search && change({ search: '' })
          }
        />
        <span className="mnt-group" role="group" aria-label={trans.__('Rows')}>
          <Button
            label={trans.__('Rows')}
            isPressed={!isCompact}
            isOff={isLong}
            title={
              isLong ? trans.__('So many rows are always compact') : undefined
            }
            run={() => setCompact(false)}
          />
          <Button
            label={trans.__('Compact')}
            isPressed={isCompact}
            run={() => setCompact(true)}
          />
        </span>
      </div>
      <Filters {...props} />
    </header>
  );
}

/** One state at a time; the counts follow the search. */
function Filters({ runs, query, change }: IHeadProps): JSX.Element {
  const found = foundRuns(runs, query.search);
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
