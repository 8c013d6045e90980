/** Header of a live view: state, progress and actions. */

import * as React from 'react';

import * as formats from '../../formats';
import { Icon } from '../../icons';
import { CommandIDs } from '../../tokens';
import { notFiniteLine, OVER, progressOf, saves, stateWord } from '../../words';
import type { IJobProps, IViewProps } from '../props';

export interface IHeaderProps extends IViewProps {
  isLive: boolean;
  isTab: boolean;
  run: (command: string, args: Record<string, string>) => void;
  can: (command: string) => boolean;
}

export function Header(props: IHeaderProps): JSX.Element {
  const { job, isLive, isTab, run, can, trans } = props;
  const isOver = OVER.has(job.state);
  const args = { jobId: job.job_id };
  const action = (command: string, label: string, kind = '') =>
    can(command) && (
      <button
        className={`btn ${kind}`}
        aria-disabled={!isLive}
        title={
          isLive
            ? undefined
            : trans.__('Not live: the Jupyter server does not know this job.')
        }
        onClick={() => isLive && run(command, args)}
      >
        {label}
      </button>
    );
  return (
    <div className="mnt-head">
      <div className="mnt-head-row">
        <span className="nw">
          <Icon name={job.state} /> {stateWord(job.state, trans)}
        </span>
        <span className="mnt-head-name">{job.name}</span>
        <span className="m s">{identity(props)}</span>
        <span className="sp" />
        {action(CommandIDs.logs, trans.__('Logs'))}
        {saves(job) && action(CommandIDs.save, trans.__('Save'))}
        {!isOver && action(CommandIDs.stop, trans.__('Stop'))}
        {!isOver && action(CommandIDs.kill, trans.__('Kill'), 'dan')}
        {isOver && action(CommandIDs.launchAgain, trans.__('Launch again'))}
        {!isTab && can(CommandIDs.attach) && isLive && (
          <button
            className="btn ico"
            aria-label={trans.__('Open as a tab')}
            title={trans.__('Open as a tab')}
            onClick={() => run(CommandIDs.attach, args)}
          >
            <Icon name="tab" />
          </button>
        )}
      </div>
      <Progress job={job} trans={trans} />
    </div>
  );
}

function identity({ job, store, trans }: IViewProps): string {
  const parts = [job.job_id];
  if (job.attempt > 0) {
    parts.push(trans.__('attempt %1', job.attempt));
  }
  const stages = new Set(
    store.sorted.map(({ who }) => (who.stages ?? []).join(','))
  );
  if (store.ranks.size > 8) {
    const replicas = store.ranks.size / Math.max(1, stages.size);
    parts.push(
      stages.size > 1
        ? trans.__(
            '%1 ranks: %2 stages × %3 replicas',
            store.ranks.size,
            stages.size,
            replicas
          )
        : trans.__('%1 ranks', store.ranks.size)
    );
  }
  return parts.join(', ');
}

function Progress({ job, trans }: IJobProps): JSX.Element {
  const { step, total_steps, elapsed_s, remaining_s } = job.numbers;
  const share = progressOf(job);
  const alarm = notFiniteLine(job.numbers, trans);
  return (
    <>
      {share !== null && (
        <div
          className="mnt-progress"
          role="progressbar"
          aria-label={trans.__('Steps')}
          aria-valuemin={0}
          aria-valuemax={total_steps ?? 0}
          aria-valuenow={step ?? 0}
        >
          <span style={{ width: `${100 * share}%` }} />
        </div>
      )}
      <div className="mnt-facts">
        {(step ?? 0) > 0 && (
          <span>
            <span className="b">
              {trans.__('step %1', formats.count(step))}
            </span>
            {total_steps ? trans.__(' of %1', formats.count(total_steps)) : ''}
          </span>
        )}
        {alarm && <span className="mnt-alarm">{alarm}</span>}
        {typeof elapsed_s === 'number' && (
          <span>{trans.__('elapsed %1', formats.duration(elapsed_s))}</span>
        )}
        {typeof remaining_s === 'number' && !OVER.has(job.state) && (
          <span>
            {trans.__(
              'done %1, in %2',
              formats.clock(Date.now() / 1000 + remaining_s),
              formats.duration(remaining_s)
            )}
          </span>
        )}
      </div>
    </>
  );
}
