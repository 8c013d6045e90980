/** Header of a live view: state, progress and actions. */

import * as React from 'react';

import { serverClock } from '../../clock';
import { Bar, Button } from '../../controls';
import * as formats from '../../formats';
import { Icon } from '../../icons';
import type { JobEntry } from '../../schema';
import { CommandIDs } from '../../tokens';
import {
  canGoOnFrom,
  endedAt,
  jobActions,
  notFiniteLine,
  OVER,
  progressOf,
  ofSteps,
  stateWord
} from '../../words';
import type { IJobProps, IViewProps } from '../props';
import { meanings } from '../../terms';
import { trans } from '../../trans';

export interface IHeaderProps extends IViewProps {
  isLive: boolean;
  isTab: boolean;
  /** The user has read-only access. */
  isReadOnly: boolean;
  run: (command: string, args: Record<string, string>) => void;
  can: (command: string) => boolean;
}

export function Header(props: IHeaderProps): JSX.Element {
  const { job, isLive, isTab, isReadOnly, run, can } = props;
  // What to do with an ended job stands in the resume bar.
  const hasActions = !isReadOnly && !OVER.has(job.state);
  const args = { jobId: job.job_id };
  const logs = { command: CommandIDs.logs, label: trans.__('Logs') };
  const stacks = { command: CommandIDs.stacks, label: trans.__('Stacks') };
  const files = { command: CommandIDs.files, label: trans.__('Files') };
  const reads = [
    logs,
    ...(OVER.has(job.state) ? [] : [stacks]),
    ...(isReadOnly ? [] : [files])
  ];
  const notLive = trans.__(
    'Not live: the Jupyter server does not know this job.'
  );
  return (
    <div className="mnt-head">
      <div className="mnt-head-row">
        <span className="nw">
          <Icon name={job.state} />{' '}
          {isLive || OVER.has(job.state)
            ? stateWord(job.state)
            : trans.__('was %1', stateWord(job.state))}
        </span>
        <span className="mnt-head-name">{job.name}</span>
        <span className="m s">{identity(props)}</span>
        <span className="sp" />
        {[...reads, ...(hasActions ? jobActions(job) : [])]
          .filter(action => can(action.command))
          .map(action => (
            <Button
              key={action.label}
              {...action}
              {...(isLive ? {} : { isOff: true, title: notLive })}
              run={() => run(action.command, args)}
            />
          ))}
        {!isTab && can(CommandIDs.attach) && isLive && (
          <Button
            kind="ico"
            icon="tab"
            label={trans.__('Open as a tab')}
            run={() => run(CommandIDs.attach, args)}
          />
        )}
      </div>
      <Progress {...{ job, isLive }} />
    </div>
  );
}

function identity({ job, store }: IViewProps): string {
  const { size } = store.ranks;
  const stages = new Set(
    store.sorted.map(({ who }) => (who.stages ?? []).join(','))
  ).size;
  const ranks =
    stages > 1
      ? trans.__(
          '%1 ranks: %2 stages × %3 replicas',
          size,
          stages,
          size / stages
        )
      : trans.__('%1 ranks', size);
  return [
    job.job_id,
    ...(job.attempt > 0 ? [trans.__('attempt %1', job.attempt)] : []),
    ...(size > 8 ? [ranks] : [])
  ].join(', ');
}

/** What an ended job can be resumed from. */
function savedWords(job: JobEntry): string {
  const saved = canGoOnFrom(job);
  return saved === null
    ? trans.__('no checkpoint saved')
    : trans.__('saved at step %1', formats.count(saved));
}

function Progress({
  job,
  isLive
}: IJobProps & { isLive: boolean }): JSX.Element {
  const { step, total_steps, elapsed_s, remaining_s } = job.numbers;
  const [isOver, ended] = [OVER.has(job.state), endedAt(job)];
  const share = progressOf(job);
  const alarm = notFiniteLine(job.numbers);
  return (
    <>
      {share !== null && (
        <Bar role="progressbar" share={share} label={trans.__('Steps')} />
      )}
      <div className="mnt-facts">
        {(step ?? 0) > 0 && (
          <span>
            <span className="b">
              {trans.__('step %1', formats.count(step))}
            </span>
            {ofSteps(step, total_steps)}
          </span>
        )}
        {alarm && <span className="mnt-alarm">{alarm}</span>}
        {typeof elapsed_s === 'number' && (
          <span>
            {isOver
              ? trans.__('ran %1', formats.duration(elapsed_s))
              : trans.__('elapsed %1', formats.duration(elapsed_s))}
          </span>
        )}
        {ended !== null && (
          <span>{trans.__('ended %1', formats.clock(ended, true))}</span>
        )}
        {isOver && <span>{savedWords(job)}</span>}
        {typeof remaining_s === 'number' && isLive && !isOver && (
          <span title={meanings()['time left']}>
            {trans.__(
              'done at %1, in %2',
              formats.clock(serverClock.now() + remaining_s),
              formats.timeLeft(job.numbers)
            )}
          </span>
        )}
      </div>
    </>
  );
}
