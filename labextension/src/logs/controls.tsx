/** Log controls: rank, search, number of lines, follow. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { PlacedRank } from '../words';

const TAILS = [200, 1000, 5000];

/** Delay of the search after typing. */
const TYPING_MS = 300;

export interface IQuery {
  rank?: number;
  tail: number;
  search: string;
  isFollowing: boolean;
}

export const FIRST_QUERY: IQuery = {
  tail: TAILS[1],
  search: '',
  isFollowing: true
};

export interface IControlsProps {
  title: string;
  ranks: ReadonlyArray<PlacedRank>;
  query: IQuery;
  change: (query: Partial<IQuery>) => void;
  copyAll: () => void;
  trans: TranslationBundle;
}

export function Controls(props: IControlsProps): JSX.Element {
  const { title, query, change, copyAll, trans } = props;
  return (
    <div className="mnt-controls">
      <span className="b">{title}</span>
      <RankSelect {...props} />
      <Search {...props} />
      <label className="s">
        {trans.__('Lines')}{' '}
        <select
          value={query.tail}
          onChange={event => change({ tail: Number(event.target.value) })}
        >
          {TAILS.map(number => (
            <option key={number} value={number}>
              {number}
            </option>
          ))}
        </select>
      </label>
      <label className="s">
        <input
          type="checkbox"
          checked={query.isFollowing}
          onChange={event => change({ isFollowing: event.target.checked })}
        />{' '}
        {trans.__('Follow')}
      </label>
      <span className="sp" />
      <button className="btn" onClick={copyAll}>
        {trans.__('Copy')}
      </button>
    </div>
  );
}

function RankSelect(props: IControlsProps): JSX.Element {
  const { ranks, query, change, trans } = props;
  return (
    <label className="s">
      {trans.__('Rank')}{' '}
      <select
        value={query.rank ?? ''}
        onChange={({ target }) =>
          change({
            rank: target.value === '' ? undefined : Number(target.value)
          })
        }
      >
        <option value="">{trans.__('all, merged')}</option>
        {ranks.map(one => (
          <option key={one.rank} value={one.rank}>
            {`${one.rank}, ${one.node}`}
          </option>
        ))}
      </select>
    </label>
  );
}

function Search({ query, change, trans }: IControlsProps): JSX.Element {
  const [typed, setTyped] = React.useState(query.search);
  React.useEffect(() => {
    if (typed === query.search) {
      return;
    }
    const timer = window.setTimeout(() => change({ search: typed }), TYPING_MS);
    return () => window.clearTimeout(timer);
  }, [typed, query]);
  return (
    <label className="s">
      {trans.__('Search')}{' '}
      <input
        type="search"
        value={typed}
        onChange={event => setTyped(event.target.value)}
      />
    </label>
  );
}
