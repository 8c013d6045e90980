/** Columns of the list, and the cells of a run and of a job below it. */

import * as React from 'react';

import { serverClock } from '../clock';
import * as formats from '../formats';
import { Icon } from '../icons';
import { Measured } from '../measured';
import type { JobEntry } from '../schema';
import { trans } from '../trans';
import { stateWord } from '../words';
import type { ColumnName } from './query';
import { lossOf } from './loss_line';
import type { IRow } from './rows';
import { durationOf, nodesText, startedAt, stepOf } from './run';
import { Sparkline } from './sparkline';

export interface IColumn {
  name: ColumnName;
  title: string;
  isNumber?: boolean;
  /** Left out in narrow places. */
  isWide?: boolean;
}

export function columns(): IColumn[] {
  return [
    { name: 'state', title: trans.__('state') },
    { name: 'name', title: trans.__('name') },
    { name: 'started', title: trans.__('started'), isNumber: true },
    {
      name: 'duration',
      title: trans.__('duration'),
      isNumber: true,
      isWide: true
    },
    { name: 'nodes', title: trans.__('nodes'), isWide: true },
    { name: 'step', title: trans.__('step'), isNumber: true },
    {
      name: 'throughput',
      title: trans.__('tok/s'),
      isNumber: true,
      isWide: true
    },
    { name: 'mfu', title: trans.__('MFU'), isNumber: true, isWide: true },
    { name: 'loss', title: trans.__('loss'), isNumber: true }
  ];
}

/** The content of a column, except for the name. */
export function cell(row: IRow, column: ColumnName): React.ReactNode {
  const job = row.job ?? row.run.newest;
  const jobs = row.job ? [row.job] : row.run.jobs;
  const { numbers } = job;
  switch (column) {
    case 'state':
      return (
        <>
          <Icon name={job.state} size={14} /> {stateWord(job.state)}
        </>
      );
    case 'started':
      return (
        <span title={formats.dateTime(startedAt(job))}>
          {formats.clock(startedAt(job))}
        </span>
      );
    case 'duration':
      return formats.duration(durationOf(jobs, serverClock.now()));
    case 'nodes':
      return nodesText(job);
    case 'step':
      return stepText(jobs);
    case 'throughput':
      return figure(job, numbers.tokens_per_s, formats.rate);
    case 'mfu':
      return figure(job, numbers.mfu, formats.percent);
    case 'loss':
      return (
        <span className="mnt-loss">
          <Sparkline jobs={jobs} />
          <span>{figure(job, lossOf(job), formats.loss)}</span>
        </span>
      );
    case 'name':
      return job.name;
  }
}

/** `620 of 1,000` while it is not there, else only the step. */
export function stepText(jobs: ReadonlyArray<JobEntry>): string {
  const total = jobs[0].numbers.total_steps;
  const step = stepOf(jobs);
  return total && step !== null && step < total
    ? trans.__('%1 of %2', formats.count(step), formats.count(total))
    : formats.count(step);
}

function figure<Value extends formats.Maybe | formats.NonFinite>(
  job: JobEntry,
  value: Value,
  write: (value: Value) => string
): JSX.Element {
  const reason =
    Object.values(job.numbers.missing ?? {})[0] ??
    trans.__('read when its live view is opened');
  return <Measured {...{ value, write, reason }} />;
}
