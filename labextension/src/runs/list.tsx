/** List of all runs, as a tab. */

import { ReactWidget } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { Alert } from '../alert';
import { serverClock } from '../clock';
import { LETTERS } from '../compare/letters';
import { Button } from '../controls';
import type { IClusterModel } from '../tokens';
import { trans } from '../trans';
import { RunActions } from './actions';
import { Grid } from './grid';
import { Head } from './head';
import { RunListing } from './listing';
import { Nothing } from './nothing';
import { FIRST_QUERY, type IQuery, shownRuns } from './query';
import { MOST_IN_PAGE, rowsOf } from './rows';
import { type IRun, isOver } from './run';

export class RunListWidget extends ReactWidget {
  constructor(
    private listing: RunListing,
    private commands: CommandRegistry
  ) {
    super();
    this.addClass('mnt-runs-widget');
  }

  protected render(): JSX.Element {
    return <RunList listing={this.listing} commands={this.commands} />;
  }

  dispose(): void {
    this.listing.dispose();
    super.dispose();
  }
}

export function runListWidget(
  model: IClusterModel,
  commands: CommandRegistry
): RunListWidget {
  return new RunListWidget(new RunListing(model), commands);
}

const LEAST_COMPARED = 2;

const NONE: ReadonlySet<string> = new Set();

export function RunList(props: {
  listing: RunListing;
  commands: CommandRegistry;
}): JSX.Element {
  const { listing, commands } = props;
  const [, redraw] = React.useReducer((n: number) => n + 1, 0);
  React.useEffect(() => {
    listing.changed.connect(redraw);
    redraw();
    return () => void listing.changed.disconnect(redraw);
  }, [listing]);
  const actions = React.useMemo(
    () => new RunActions(listing, commands),
    [listing, commands]
  );
  const [query, setQuery] = React.useState(FIRST_QUERY);
  const [ticked, setTicked] = React.useState(NONE);
  const [opened, setOpened] = React.useState(NONE);
  const [wantsCompact, setCompact] = React.useState(false);
  const [isWide, setWide] = React.useState(false);
  const field = React.useRef<HTMLInputElement>(null);
  const change = (part: Partial<IQuery>) => setQuery({ ...query, ...part });
  const { runs } = listing;
  const shown = shownRuns(runs, query, serverClock.now());
  const rows = rowsOf(shown, opened);
  const isLong = rows.length > MOST_IN_PAGE;
  const isCompact = wantsCompact || isLong;
  return (
    <div className="mnt mnt-runs">
      <Head
        {...{ runs, shown, query, change, field }}
        {...{ isCompact, isLong, setCompact, isWide, setWide }}
      />
      {listing.problem && (
        <Alert problem={listing.problem}>
          <Button label={trans.__('Try again')} run={() => listing.read()} />
        </Alert>
      )}
      {rows.length ? (
        <Grid
          {...{ rows, actions, isCompact, isLong, isWide }}
          {...{ ticked, setTicked, opened, setOpened }}
          sort={query.sort}
          setSort={sort => change({ sort })}
          search={() => field.current?.focus()}
        />
      ) : (
        <Nothing {...{ runs, query, change }} isRead={listing.isRead} />
      )}
      <SelectionBar {...{ runs, ticked, setTicked, actions }} />
    </div>
  );
}

/** What to do with the runs that are ticked. */
function SelectionBar(props: {
  runs: ReadonlyArray<IRun>;
  ticked: ReadonlySet<string>;
  setTicked: (ticked: ReadonlySet<string>) => void;
  actions: RunActions;
}): JSX.Element | null {
  const { runs, ticked, setTicked, actions } = props;
  const chosen = runs.filter(run => ticked.has(run.id));
  if (!chosen.length) {
    return null;
  }
  const ended = chosen.filter(isOver);
  const canCompare =
    chosen.length >= LEAST_COMPARED && chosen.length <= LETTERS.length;
  return (
    <div
      className="mnt-runs-bar"
      role="toolbar"
      aria-label={trans.__('Selected runs')}
    >
      <span className="b" role="status">
        {trans.__('%1 selected', chosen.length)}
      </span>
      <span className="m mnt-runs-chosen">
        {chosen.map(run => run.newest.name).join(', ')}
      </span>
      <span className="sp" />
      {!canCompare && (
        <span className="m s">
          {trans.__('%1 to %2 can be compared', LEAST_COMPARED, LETTERS.length)}
        </span>
      )}
      <Button
        kind="pri"
        label={trans.__('Compare')}
        isOff={!canCompare}
        run={() => actions.compare(chosen)}
      />
      {!actions.isReadOnly && (
        <Button
          label={trans.__('Delete…')}
          isOff={ended.length < chosen.length}
          title={
            ended.length < chosen.length
              ? trans.__('Only ended runs can be deleted')
              : undefined
          }
          run={() => actions.remove(ended)}
        />
      )}
      <Button label={trans.__('Clear')} run={() => setTicked(new Set())} />
    </div>
  );
}
