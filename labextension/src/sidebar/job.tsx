/** Job row: progress, problem and actions. */

import * as React from 'react';

import { copy } from '../clipboard';
import { cellForJob } from '../cells';
import * as formats from '../formats';
import { Icon } from '../icons';
import { Measured } from '../measured';
import { ProblemLines } from '../problem';
import type { JobEntry } from '../schema';
import { CommandIDs } from '../tokens';
import {
  activity,
  notFiniteLine,
  OVER,
  progressOf,
  ranksOf,
  restartLine,
  savedStep,
  saves,
  stateWord
} from '../words';
import { type IMenuItem, menuKeys, RowMenu } from './menu';
import type { IContext } from './parts';
import { Ranks } from './ranks';

type IJobProps = IContext & { job: JobEntry };

export function Job(props: IJobProps): JSX.Element {
  const { job, trans, drag } = props;
  const [hasMenu, setMenu] = React.useState(false);
  const problem = job.problem ?? job.stall;
  return (
    <li
      className="mnt-job"
      data-state={job.state}
      {...menuKeys(() => setMenu(true))}
    >
      <div
        className="mnt-row-head"
        onMouseDown={event => drag(event, job.name, cellForJob(job))}
      >
        <span className="mnt-job-name">
          <Icon name={job.state} /> <span className="mnt-name">{job.name}</span>{' '}
          <span>{stateLine(job, trans)}</span>
        </span>
        <RowMenu
          label={trans.__('More for %1', job.name)}
          items={menuItems(props)}
          isOpen={hasMenu}
          setOpen={setMenu}
        />
      </div>
      <div className="mnt-indent">
        {problem && <ProblemLines problem={problem} trans={trans} />}
        <Progress {...props} />
        <Ranks {...props} />
        <Buttons {...props} />
      </div>
    </li>
  );
}

function menuItems({ job, commands, trans, insert }: IJobProps): IMenuItem[] {
  const args = { jobId: job.job_id };
  const run = (command: string) => () => void commands.execute(command, args);
  return [
    {
      label: trans.__('Insert cell for %1', job.name),
      run: () => insert(cellForJob(job))
    },
    { label: trans.__('Copy spec'), run: run(CommandIDs.copySpec) },
    { label: trans.__('Copy id'), run: () => void copy(job.job_id) },
    { label: trans.__('Launch again'), run: run(CommandIDs.launchAgain) }
  ];
}

function stateLine(job: JobEntry, trans: IContext['trans']): string {
  const word = stateWord(job.state, trans);
  const ends = job.parts
    .map(part => part.ended_s ?? 0)
    .filter(ended => ended > 0);
  if (OVER.has(job.state) && ends.length) {
    return `${word} ${formats.clock(Math.max(...ends))}`;
  }
  const restart = restartLine(job, trans);
  if (restart) {
    return restart;
  }
  const unknown = ranksOf(job).filter(rank => rank.state === 'unknown').length;
  return unknown
    ? `${word}, ${trans._n('%1 rank unknown', '%1 ranks unknown', unknown)}`
    : word;
}

function Progress(props: IJobProps): JSX.Element {
  const { job, trans } = props;
  const isOver = OVER.has(job.state);
  const share = progressOf(job);
  const hasSteps = (job.numbers.step ?? 0) > 0;
  return (
    <>
      {share !== null && !isOver && (
        <div
          className="mnt-progress"
          role="progressbar"
          aria-label={trans.__('Steps of %1', job.name)}
          aria-valuemin={0}
          aria-valuemax={100}
          aria-valuenow={Math.round(100 * share)}
        >
          <span style={{ width: `${100 * share}%` }} />
        </div>
      )}
      {hasSteps && <Numbers {...props} />}
      {!hasSteps && !isOver && !job.restart && (
        <Activity job={job} trans={trans} />
      )}
    </>
  );
}

/** Two lines: steps, and headline figures. */
function Numbers({ job, trans }: IJobProps): JSX.Element {
  const { numbers } = job;
  const { missing = {} } = numbers;
  const alarm = notFiniteLine(numbers, trans);
  return (
    <p className="s">
      {stepLine(job, trans)}
      <br />
      <Measured
        value={numbers.tokens_per_s}
        write={formats.rate}
        reason={missing.tokens_per_s}
      />{' '}
      tok/s, MFU{' '}
      <Measured
        value={numbers.mfu}
        write={formats.percent}
        reason={missing.mfu}
      />
      , {trans.__('loss')}{' '}
      <Measured
        value={numbers.loss}
        write={formats.loss}
        reason={missing.loss}
      />
      {formats.isKnown(numbers.evaluation_loss) && (
        <>
          , {trans.__('evaluation')}{' '}
          <Measured value={numbers.evaluation_loss} write={formats.loss} />
        </>
      )}
      {alarm && (
        <>
          <br />
          <span className="mnt-alarm">{alarm}</span>
        </>
      )}
    </p>
  );
}

function stepLine(job: JobEntry, trans: IContext['trans']): string {
  const { step, total_steps: total, remaining_s: rest } = job.numbers;
  const saved = savedStep(job);
  const at = formats.count(step);
  return [
    total
      ? trans.__('step %1 of %2', at, formats.count(total))
      : trans.__('step %1', at),
    ...(saved === null ? [] : [trans.__('saved at %1', formats.count(saved))]),
    ...(typeof rest === 'number'
      ? [trans.__('done %1', formats.clock(Date.now() / 1000 + rest))]
      : [])
  ].join(', ');
}

/** A rank's activity before its first step. */
function Activity(props: {
  job: JobEntry;
  trans: IContext['trans'];
}): JSX.Element | null {
  const busy = props.job.progress?.[0];
  return busy ? (
    <p className="s">
      {props.trans.__('rank %1 %2', busy.rank, activity(busy))}
    </p>
  ) : null;
}

function Buttons({ job, commands, trans }: IJobProps): JSX.Element {
  const args = { jobId: job.job_id };
  const run = (command: string) => () => void commands.execute(command, args);
  const isStopping = job.state === 'stopping';
  return (
    <div className="mnt-buttons">
      <button className="btn" onClick={run(CommandIDs.attach)}>
        {trans.__('Attach')}
      </button>
      <button className="btn" onClick={run(CommandIDs.logs)}>
        {trans.__('Logs')}
      </button>
      {OVER.has(job.state) ? (
        <button className="btn" onClick={run(CommandIDs.launchAgain)}>
          {trans.__('Launch again')}
        </button>
      ) : (
        <>
          {saves(job) && (
            <button
              className="btn"
              title={trans.__('Save a checkpoint after the current step')}
              onClick={run(CommandIDs.save)}
            >
              {trans.__('Save')}
            </button>
          )}
          <button
            className="btn"
            aria-disabled={isStopping}
            onClick={isStopping ? undefined : run(CommandIDs.stop)}
          >
            {isStopping ? trans.__('Stopping…') : trans.__('Stop')}
          </button>
          <button className="btn dan" onClick={run(CommandIDs.kill)}>
            {trans.__('Kill')}
          </button>
        </>
      )}
    </div>
  );
}
