/** Head of the list: how many runs there are, the search field and the filters. */

import * as React from 'react';

import { serverClock } from '../clock';
import { Button } from '../controls';
import * as formats from '../formats';
import { csvOf } from '../liveview/export/csv';
import { download } from '../liveview/export/download';
import { trans } from '../trans';
import { OVER } from '../words';
import { Chips } from './chips';
import { columns } from './columns';
import { COLUMNS, runRow } from './csv';
import { Lists } from './lists';
import type { IQuery } from './query';
import type { IRun } from './run';

export interface IHeadProps {
  runs: ReadonlyArray<IRun>;
  /** Runs that match the query, in its order. */
  shown: ReadonlyArray<IRun>;
  query: IQuery;
  change: (query: Partial<IQuery>) => void;
  field: React.RefObject<HTMLInputElement>;
  isCompact: boolean;
  /** Whether so many rows are shown that all are compact. */
  isLong: boolean;
  setCompact: (isCompact: boolean) => void;
  /** Whether all columns are shown, also where there is little room. */
  isWide: boolean;
  setWide: (isWide: boolean) => void;
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
              isLong
                ? trans.__('A list this long is always compact')
                : undefined
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
      <div className="row mnt-runs-filters">
        <Chips {...props} />
        <Lists {...props} />
        <MoreColumns {...props} />
        <Download shown={props.shown} />
      </div>
    </header>
  );
}

/** Says that columns are left out where there is little room, and shows them. */
function MoreColumns({
  isWide,
  setWide
}: Pick<IHeadProps, 'isWide' | 'setWide'>): JSX.Element {
  const wide = columns().filter(column => column.isWide);
  return (
    <span className="mnt-runs-more">
      <Button
        label={
          isWide
            ? trans.__('Hide %1 columns', wide.length)
            : trans.__('Show %1 more columns', wide.length)
        }
        title={wide.map(({ title }) => title).join(', ')}
        run={() => setWide(!isWide)}
      />
    </span>
  );
}

/** The runs that are shown, as a file. */
function Download({ shown }: Pick<IHeadProps, 'shown'>): JSX.Element {
  const save = () => {
    const now = serverClock.now();
    const { text } = csvOf(
      COLUMNS,
      shown.map(run => runRow(run, now))
    );
    download(new Blob([text], { type: 'text/csv' }), 'runs.csv');
  };
  return (
    <Button
      label={trans.__('Download CSV')}
      title={trans.__('The runs that are shown, one row each')}
      isOff={!shown.length}
      run={save}
    />
  );
}
