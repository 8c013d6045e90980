/** Grid of runs: heads that sort, rows with keys; of many rows only those that can be seen. */

import * as React from 'react';

import { trans } from '../trans';
import { OVER } from '../words';
import type { RunActions } from './actions';
import { columns, type IColumn } from './columns';
import { actOf, type KeyAct } from './keys';
import { type IQuery, sortedBy } from './query';
import { classOf, Row } from './row';
import { COMPACT_PX, inView, type IRow, scrolledTo } from './rows';
import { isOver, isResumable } from './run';

export interface IGridProps {
  rows: ReadonlyArray<IRow>;
  actions: RunActions;
  sort: IQuery['sort'];
  setSort: (sort: IQuery['sort']) => void;
  ticked: ReadonlySet<string>;
  setTicked: (ticked: ReadonlySet<string>) => void;
  opened: ReadonlySet<string>;
  setOpened: (opened: ReadonlySet<string>) => void;
  isCompact: boolean;
  /** Whether only the rows that can be seen are in the page. */
  isLong: boolean;
  /** Whether all columns are shown, also where there is little room. */
  isWide: boolean;
  /** Go to the search field. */
  search: () => void;
}

export function Grid(props: IGridProps): JSX.Element {
  const { rows, actions, isCompact, isLong, isWide, ticked, opened } = props;
  const room = React.useRef<HTMLDivElement>(null);
  const seen = useSeen(room, rows.length, isLong);
  const focus = useFocus(room, props);
  const shownColumns = columns();
  const [from, to] = seen;
  const modes = `${isCompact ? ' mnt-compact' : ''}${isWide ? ' mnt-all' : ''}`;
  return (
    <div ref={room} className={`mnt-runs-room${modes}`}>
      <div
        className="mnt-runs-grid"
        role="treegrid"
        aria-label={trans.__('Runs')}
        aria-rowcount={rows.length + 1}
        aria-multiselectable="true"
        data-lm-suppress-shortcuts="true"
        onKeyDown={event => press(event, props, focus)}
      >
        <Heads {...props} columns={shownColumns} />
        <Gap rows={from} />
        {rows.slice(from, to).map((row, i) => (
          <Row
            key={row.key}
            {...{ row, actions, isCompact }}
            index={from + i + 2}
            columns={shownColumns}
            isOpen={opened.has(row.run.id)}
            isTicked={ticked.has(row.run.id)}
            isCurrent={from + i === focus.at}
            toggle={() => props.setOpened(turned(opened, row.run.id))}
            tick={() => props.setTicked(turned(ticked, row.run.id))}
            enter={() => focus.enter(row.key)}
          />
        ))}
        <Gap rows={rows.length - to} />
      </div>
    </div>
  );
}

/** Space of the rows that are not in the page. */
function Gap({ rows }: { rows: number }): JSX.Element | null {
  return rows > 0 ? (
    <div
      role="presentation"
      className="mnt-runs-gap"
      style={{ height: rows * COMPACT_PX }}
    />
  ) : null;
}

function Heads(
  props: IGridProps & { columns: ReadonlyArray<IColumn> }
): JSX.Element {
  const { sort, setSort } = props;
  return (
    <div role="row" className="mnt-run-row mnt-runs-head" aria-rowindex={1}>
      <div role="columnheader">
        <span className="mnt-visually-hidden">{trans.__('selected')}</span>
      </div>
      {props.columns.map(column => (
        <div
          key={column.name}
          role="columnheader"
          className={classOf(column)}
          aria-sort={
            sort.column !== column.name
              ? 'none'
              : sort.isDown
                ? 'descending'
                : 'ascending'
          }
        >
          <button
            className="mnt-sort"
            onClick={() => setSort(sortedBy(sort, column.name))}
          >
            {column.title}
          </button>
        </div>
      ))}
      <div role="columnheader">
        <span className="mnt-visually-hidden">{trans.__('more')}</span>
      </div>
    </div>
  );
}

/** A set with one member added or removed. */
export function turned(
  set: ReadonlySet<string>,
  key: string
): ReadonlySet<string> {
  const next = new Set(set);
  if (!next.delete(key)) {
    next.add(key);
  }
  return next;
}

/** The rows that can be seen, and some more; all where there are few. */
function useSeen(
  room: React.RefObject<HTMLElement>,
  rows: number,
  isLong: boolean
): readonly [number, number] {
  const [[top, height], setView] = React.useState([0, 0]);
  React.useLayoutEffect(() => {
    const node = room.current!;
    const look = () => setView([node.scrollTop, node.clientHeight]);
    look();
    const sizes = new ResizeObserver(look);
    sizes.observe(node);
    node.addEventListener('scroll', look, { passive: true });
    return () => {
      sizes.disconnect();
      node.removeEventListener('scroll', look);
    };
  }, [room]);
  return isLong ? inView(rows, top, height) : [0, rows];
}

interface IFocus {
  /** Number of the row that the keys act on. */
  at: number;
  enter: (key: string) => void;
  /** Go to a row. */
  move: (to: number) => void;
}

/** The row that has the focus, or had it last; it keeps it when the order changes. */
function useFocus(
  room: React.RefObject<HTMLElement>,
  { rows, isLong }: IGridProps
): IFocus {
  const [key, setKey] = React.useState('');
  const isMoving = React.useRef(false);
  React.useLayoutEffect(() => {
    if (isMoving.current) {
      isMoving.current = false;
      const shown = room.current!.querySelectorAll<HTMLElement>('[data-key]');
      [...shown].find(row => row.dataset.key === key)?.focus();
    }
  });
  return {
    at: Math.max(
      0,
      rows.findIndex(row => row.key === key)
    ),
    enter: setKey,
    move: to => {
      const node = room.current!;
      if (isLong) {
        // The head covers the height of a row.
        const height = node.clientHeight - COMPACT_PX;
        node.scrollTop = scrolledTo(to, node.scrollTop, height);
      }
      isMoving.current = true;
      setKey(rows[to].key);
    }
  };
}

function press(
  event: React.KeyboardEvent<HTMLElement>,
  props: IGridProps,
  focus: IFocus
): void {
  const { rows } = props;
  const row = rows[focus.at];
  const at = event.target as Element;
  // Enter and Space press a button that has the focus.
  const isTaken =
    !at.matches('[data-key]') && (event.key === 'Enter' || event.key === ' ');
  const isInRow = at.closest('[data-key]') !== null;
  const act =
    isInRow && row && !isTaken ? actOf(event, focus.at, rows.length) : null;
  if (!act) {
    return;
  }
  event.preventDefault();
  if (act.kind === 'move') {
    if (act.ticks) {
      const both = [row.run.id, rows[act.to].run.id];
      props.setTicked(new Set([...props.ticked, ...both]));
    }
    focus.move(act.to);
  } else {
    perform(act.kind, row, props);
  }
}

function perform(
  kind: Exclude<KeyAct['kind'], 'move'>,
  row: IRow,
  props: IGridProps
): void {
  const { actions, opened, ticked } = props;
  const { run } = row;
  const job = row.job ?? run.newest;
  const mayChange = !actions.isReadOnly;
  switch (kind) {
    case 'open':
      return props.setOpened(new Set([...opened, run.id]));
    case 'close':
      return props.setOpened(new Set([...opened].filter(id => id !== run.id)));
    case 'tick':
      return row.job ? undefined : props.setTicked(turned(ticked, run.id));
    case 'search':
      return props.search();
    case 'attach':
      return void actions.attach(job);
    case 'resume':
      return void (mayChange && isResumable(run) && actions.resume(job));
    case 'rename':
      return void (mayChange && actions.rename(job));
    case 'note':
      return void (mayChange && actions.editNote(job));
    case 'remove':
      return void (
        mayChange &&
        OVER.has(job.state) &&
        isOver(run) &&
        actions.remove([run], row.job)
      );
  }
}
