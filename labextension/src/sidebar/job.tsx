/** Job row: progress, problem and actions. */

import * as React from 'react';

import { copy } from '../clipboard';
import { cellForJob } from '../cells';
import { Bar, Button } from '../controls';
import * as formats from '../formats';
import { Icon } from '../icons';
import { Measured } from '../measured';
import { PartNotes } from '../part_notes';
import { ProblemLines } from '../problem';
import type { JobEntry } from '../schema';
import { CommandIDs } from '../tokens';
import {
  activity,
  canGoOnFrom,
  hasNamesake,
  jobActions,
  notFiniteLine,
  OVER,
  progressOf,
  ranksOf,
  ofSteps,
  restartLine,
  savedStep,
  stateWord
} from '../words';
import { menuKeys, type MenuItem, RowMenu } from './menu';
import type { IContext } from './parts';
import { Ranks } from './ranks';
import { trans } from '../trans';

type IJobProps = IContext & { job: JobEntry };

export function Job(props: IJobProps): JSX.Element {
  const { job, drag } = props;
  const items = menuItems(props);
  return (
    <li className="mnt-job" data-state={job.state} {...menuKeys(items)}>
      <div
        className="mnt-row-head"
        onMouseDown={event => drag(event, job.name, cellForJob(job))}
      >
        <span className="mnt-job-name">
          <Icon name={job.state} /> <span className="mnt-name">{job.name}</span>{' '}
          {hasNamesake(job, props.model.jobs) && (
            <span className="m s">{job.job_id}</span>
          )}{' '}
          <span className={OVER.has(job.state) ? 'nw' : ''}>
            {stateLine(job)}
          </span>
        </span>
        <RowMenu label={trans.__('More for %1', job.name)} items={items} />
      </div>
      <div className="mnt-indent">
        {job.problem && <ProblemLines problem={job.problem} />}
        {job.problem && job.reasons && <p className="m s">{job.reasons}</p>}
        {job.stall && <ProblemLines problem={job.stall} />}
        <PartNotes job={job} />
        {(job.warnings ?? []).map(warning => (
          <ProblemLines key={warning.kind} problem={warning}>
            <Icon name="warning" />
          </ProblemLines>
        ))}
        <Progress job={job} />
        <Ranks {...props} />
        <Buttons {...props} />
      </div>
    </li>
  );
}

function menuItems(props: IJobProps): MenuItem[] {
  const { job, commands, insert } = props;
  const run = (command: string) => () =>
    commands.execute(command, { jobId: job.job_id });
  return [
    [trans.__('Insert cell for %1', job.name), () => insert(cellForJob(job))],
    ...(OVER.has(job.state)
      ? []
      : [[trans.__('Show stacks'), run(CommandIDs.stacks)] as MenuItem]),
    [trans.__('Copy spec'), run(CommandIDs.copySpec)],
    [trans.__('Copy id'), () => copy(job.job_id)],
    ...(isReadOnly(props) ? [] : runItems(job, run))
  ];
}

/** Actions on the run. */
function runItems(
  job: JobEntry,
  run: (command: string) => () => unknown
): MenuItem[] {
  const step = canGoOnFrom(job);
  const resume: MenuItem = [
    trans.__('Resume from step %1…', formats.count(step)),
    run(CommandIDs.resume)
  ];
  return [
    ...(step === null ? [] : [resume]),
    [trans.__('Examine for it'), run(CommandIDs.doctor)],
    [trans.__('Start over…'), run(CommandIDs.launchAgain)],
    [trans.__('Checkpoints…'), run(CommandIDs.checkpoints)]
  ];
}

const isReadOnly = ({ model }: IContext) => model.status?.is_read_only ?? false;

function stateLine(job: JobEntry): string {
  const word =
    job.hurt === 'stalled' ? trans.__('stalled') : stateWord(job.state);
  const ends = job.parts
    .map(part => part.ended_s ?? 0)
    .filter(ended => ended > 0);
  if (OVER.has(job.state) && ends.length) {
    return `${word} ${formats.clock(Math.max(...ends))}`;
  }
  const restart = restartLine(job);
  if (restart) {
    return restart;
  }
  const unknown = ranksOf(job).filter(rank => rank.state === 'unknown').length;
  return unknown
    ? `${word}, ${trans._n('%1 rank unknown', '%1 ranks unknown', unknown)}`
    : word;
}

function Progress({ job }: { job: JobEntry }): JSX.Element {
  const isOver = OVER.has(job.state);
  const share = progressOf(job);
  const busy = job.restart || isOver ? undefined : job.progress?.[0];
  return (
    <>
      {share !== null && !isOver && (
        <Bar
          role="progressbar"
          share={share}
          label={trans.__('Steps of %1', job.name)}
        />
      )}
      {job.numbers.step ? (
        <Numbers job={job} />
      ) : (
        busy && (
          <p className="s">
            {trans.__('rank %1 %2', busy.rank, activity(busy))}
          </p>
        )
      )}
    </>
  );
}

/** Two lines: steps, and headline figures. */
function Numbers({ job }: { job: JobEntry }): JSX.Element {
  const { numbers } = job;
  const alarm = notFiniteLine(numbers);
  const figure = (
    name: 'tokens_per_s' | 'mfu' | 'loss' | 'evaluation_loss',
    write: (value: any) => string
  ) => (
    <Measured
      value={numbers[name]}
      write={write}
      reason={numbers.missing?.[name]}
    />
  );
  return (
    <p className="s">
      {stepLine(job)}
      <br />
      {figure('tokens_per_s', formats.rate)} tok/s, MFU{' '}
      {figure('mfu', formats.percent)}, {trans.__('loss')}{' '}
      {figure('loss', formats.loss)}
      {formats.isKnown(numbers.evaluation_loss) && (
        <>
          , {trans.__('evaluation')} {figure('evaluation_loss', formats.loss)}
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

function stepLine(job: JobEntry): string {
  const { numbers } = job;
  const { step, total_steps: total, remaining_s: rest } = numbers;
  const saved = savedStep(job);
  const at = formats.count(step);
  return [
    trans.__('step %1', at) + ofSteps(step, total),
    ...(saved === null ? [] : [trans.__('saved at %1', formats.count(saved))]),
    ...(typeof rest === 'number'
      ? [trans.__('done in %1', formats.timeLeft(numbers))]
      : [])
  ].join(', ');
}

function Buttons(props: IJobProps): JSX.Element {
  const { job, commands } = props;
  const actions = isReadOnly(props) ? [] : jobActions(job);
  const run = (command: string) => () =>
    commands.execute(command, { jobId: job.job_id });
  return (
    <div className="mnt-buttons">
      <Button label={trans.__('Attach')} run={run(CommandIDs.attach)} />
      <Button label={trans.__('Logs')} run={run(CommandIDs.logs)} />
      {!isReadOnly(props) && (
        <Button label={trans.__('Files')} run={run(CommandIDs.files)} />
      )}
      {actions.map(action => (
        <Button key={action.label} {...action} run={run(action.command)} />
      ))}
    </div>
  );
}
