/** A row of the list: a run, or one of its jobs. */

import * as React from 'react';

import * as formats from '../formats';
import { Icon } from '../icons';
import { causeLine } from '../problem';
import { type MenuItem, menuKeys, RowMenu } from '../sidebar/menu';
import { trans } from '../trans';
import type { RunActions } from './actions';
import { cell, type IColumn } from './columns';
import type { IRow } from './rows';
import { isOver, isResumable } from './run';

export interface IRowProps {
  row: IRow;
  /** From 1; the head is the first. */
  index: number;
  columns: ReadonlyArray<IColumn>;
  actions: RunActions;
  isCompact: boolean;
  isOpen: boolean;
  isTicked: boolean;
  /** Whether the keys act on it. */
  isCurrent: boolean;
  toggle: () => void;
  tick: () => void;
  enter: () => void;
}

export function Row(props: IRowProps): JSX.Element {
  const { row, index, columns, actions, isTicked, isCurrent, isOpen } = props;
  const { run, job } = row;
  const items = menuItems(row, actions);
  const kind = job ? `mnt-run-job${row.isLast ? ' mnt-last' : ''}` : 'mnt-run';
  const { onContextMenu, onKeyDown } = menuKeys(items);
  return (
    <div
      role="row"
      className={`mnt-run-row ${kind}`}
      data-key={row.key}
      data-state={(job ?? run.newest).state}
      aria-level={job ? 2 : 1}
      aria-rowindex={index}
      aria-selected={job ? undefined : isTicked}
      aria-expanded={!job && run.jobs.length > 1 ? isOpen : undefined}
      tabIndex={isCurrent ? 0 : -1}
      onFocus={props.enter}
      {...{ onContextMenu, onKeyDown }}
    >
      <div role="gridcell">
        {!job && (
          <input
            type="checkbox"
            tabIndex={-1}
            aria-label={trans.__('Select %1', run.newest.name)}
            checked={isTicked}
            onChange={props.tick}
          />
        )}
      </div>
      {columns.map(column =>
        column.name === 'name' ? (
          <NameCell key="name" {...props} />
        ) : (
          <div key={column.name} role="gridcell" className={classOf(column)}>
            {cell(row, column.name)}
          </div>
        )
      )}
      <div role="gridcell">
        <RowMenu
          label={trans.__('More for %1', job?.job_id ?? run.newest.name)}
          items={items}
          tabIndex={isCurrent ? 0 : -1}
        />
      </div>
    </div>
  );
}

export function classOf({ isNumber, isWide }: IColumn): string {
  return [...(isNumber ? ['mnt-right'] : []), ...(isWide ? ['mnt-wide'] : [])]
    .join(' ')
    .trim();
}

function NameCell(props: IRowProps): JSX.Element {
  const { row, actions, isCurrent, isOpen, isCompact, toggle } = props;
  const { run, job } = row;
  const tabIndex = isCurrent ? 0 : -1;
  if (job) {
    return (
      <div role="gridcell" className="mnt-run-name mnt-run-branch">
        <button
          className="mnt-textlink"
          tabIndex={tabIndex}
          onClick={() => actions.attach(job)}
        >
          {job.job_id}
        </button>{' '}
        <span className="m s">{beginText(row)}</span>
      </div>
    );
  }
  const { newest } = run;
  const note = newest.note || (newest.problem && causeLine(newest.problem));
  return (
    <div role="gridcell" className="mnt-run-name">
      <button
        className="mnt-textlink b"
        tabIndex={tabIndex}
        title={newest.job_id}
        onClick={() => actions.attach(newest)}
      >
        {newest.name}
      </button>
      {run.jobs.length > 1 && (
        <button
          className="mnt-textlink s mnt-run-jobs"
          tabIndex={-1}
          onClick={toggle}
        >
          <Icon name={isOpen ? 'open' : 'closed'} size={12} />
          {trans.__('%1 jobs', run.jobs.length)}
        </button>
      )}
      {note && (
        <div className="mnt-run-note" title={isCompact ? note : undefined}>
          {note}
        </div>
      )}
    </div>
  );
}

/** Where a job of a run began. */
function beginText({ job, run }: IRow): string {
  const steps = job!.parts.map(part => part.resumed_step ?? 0);
  const step = Math.max(0, ...steps);
  return step
    ? trans.__('from step %1', formats.count(step))
    : job === run.jobs[run.jobs.length - 1]
      ? trans.__('started new')
      : '';
}

function menuItems({ run, job }: IRow, actions: RunActions): MenuItem[] {
  const one = job ?? run.newest;
  const items: MenuItem[] = [
    [trans.__('Attach'), () => actions.attach(one)],
    [trans.__('Show the log'), () => actions.showLog(one)]
  ];
  if (actions.isReadOnly) {
    return items;
  }
  if (!job && isResumable(run)) {
    items.push([trans.__('Resume…'), () => actions.resume(one)]);
  }
  items.push(
    [trans.__('Show the files'), () => actions.showFiles(one)],
    [trans.__('Checkpoints…'), () => actions.showCheckpoints(one)],
    [trans.__('Rename…'), () => actions.rename(one)],
    [trans.__('Edit note…'), () => actions.editNote(one)]
  );
  if (isOver(run)) {
    items.push([trans.__('Delete…'), () => actions.remove([run], job)]);
  }
  return items;
}
