/** Why no run is shown, and how to change that. */

import * as React from 'react';

import { serverClock } from '../clock';
import { Button } from '../controls';
import * as formats from '../formats';
import { trans } from '../trans';
import { filterWord } from './chips';
import { ageWord } from './lists';
import { type INarrowing, type IQuery, narrowings, WIDEST } from './query';
import { type IRun, programWord } from './run';

export function Nothing(props: {
  runs: ReadonlyArray<IRun>;
  query: IQuery;
  change: (query: Partial<IQuery>) => void;
  isRead: boolean;
}): JSX.Element {
  const { runs, query, change, isRead } = props;
  if (!runs.length) {
    return (
      <p className="mnt-runs-nothing" role="status">
        {isRead ? (
          <>
            {trans.__(
              'Nothing has run yet. Launch a recipe, or run a cell with'
            )}{' '}
            <code>%%mntrain launch</code>.
          </>
        ) : (
          trans.__('Asking the nodes…')
        )}
      </p>
    );
  }
  return (
    <div className="mnt-runs-nothing" role="status">
      {narrowings(runs, query, serverClock.now()).map(({ name, excluded }) => (
        <p key={name}>
          {trans.__(
            '%1 excludes %2 of %3 runs.',
            subject(query)[name],
            formats.count(excluded),
            formats.count(runs.length)
          )}{' '}
          <Button
            label={undoing()[name]}
            run={() => change({ [name]: WIDEST[name] })}
          />
        </p>
      ))}
    </div>
  );
}

function subject(query: IQuery): Record<keyof INarrowing, string> {
  const { search, filter, node, program, age } = query;
  return {
    search: trans.__('The search for “%1”', search),
    filter: trans.__('The state “%1”', filter ? filterWord(filter) : ''),
    node: trans.__('The node %1', node ?? ''),
    program: trans.__('The program “%1”', programWord(program ?? '')),
    age: trans.__('The age “%1”', ageWord(age))
  };
}

function undoing(): Record<keyof INarrowing, string> {
  return {
    search: trans.__('Clear the search'),
    filter: trans.__('Show all states'),
    node: trans.__('Show all nodes'),
    program: trans.__('Show all programs'),
    age: trans.__('Show all ages')
  };
}
