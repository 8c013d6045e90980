/** Log controls: rank, search, number of lines, follow. */

import * as React from 'react';

import { Button, Select } from '../controls';
import type { PlacedRank } from '../words';
import { trans } from '../trans';

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
  download: () => void;
}

export function Controls(props: IControlsProps): JSX.Element {
  const { title, ranks, query, change, copyAll, download } = props;
  return (
    <div className="mnt-controls">
      <span className="b">{title}</span>
      <Select<number | undefined>
        label={trans.__('Rank')}
        value={query.rank}
        options={[
          [undefined, trans.__('all, merged')],
          ...ranks.map(one => [one.rank, `${one.rank}, ${one.node}`] as const)
        ]}
        pick={rank => change({ rank })}
      />
      <Search {...props} />
      <Select
        label={trans.__('Lines')}
        value={query.tail}
        options={TAILS.map(tail => [tail, tail])}
        pick={tail => change({ tail })}
      />
      <label className="s">
        <input
          type="checkbox"
          checked={query.isFollowing}
          onChange={event => change({ isFollowing: event.target.checked })}
        />{' '}
        {trans.__('Follow')}
      </label>
      <span className="sp" />
      <Button label={trans.__('Copy')} run={copyAll} />
      <Button
        label={trans.__('Download')}
        title={trans.__('All lines, with times, as one file')}
        run={download}
      />
    </div>
  );
}

function Search({ query, change }: IControlsProps): JSX.Element {
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
