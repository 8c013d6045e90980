/** Resume bar of an ended job: resume, start over, checkpoints. */

import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { Button } from '../controls';
import * as formats from '../formats';
import type { JobEntry, ResumeOffer } from '../schema';
import { CommandIDs, type IClusterModel } from '../tokens';
import { trans } from '../trans';
import { OVER } from '../words';
import { CheckpointTable } from './table';
import {
  hasSaved,
  obstacleText,
  readOffer,
  resumeLabel,
  resumeText,
  saved
} from './texts';
import { useOffer } from './use_offer';

export interface IBarProps {
  job: JobEntry;
  model: IClusterModel;
  commands: CommandRegistry;
}

/** Hidden for jobs that have not ended, and for read-only users. */
export function ResumeBar(props: IBarProps): JSX.Element | null {
  const { job, model } = props;
  const isOver = OVER.has(job.state) && !job.restart;
  if (!isOver || model.status?.is_read_only) {
    return null;
  }
  return <EndedBar {...props} />;
}

type Run = (command: string, args?: Record<string, unknown>) => Promise<any>;

function EndedBar({ job, model, commands }: IBarProps): JSX.Element | null {
  const { offer, setOffer, hasFailed } = useOffer(job, model);
  const run: Run = (command, args = {}) =>
    commands.execute(command, { jobId: job.job_id, ...(args as object) });
  if (!offer) {
    return hasFailed ? (
      <div className="mnt-resume">
        <StartOver run={run} isFirst />
      </div>
    ) : null;
  }
  const content = <Content {...{ job, offer, setOffer, run }} />;
  return hasSaved(offer) ? (
    <section
      className="mnt-resume mnt-resume-bar"
      aria-label={trans.__('Resume')}
    >
      {content}
    </section>
  ) : (
    <div className="mnt-resume">{content}</div>
  );
}

function Content(props: {
  job: JobEntry;
  offer: ResumeOffer;
  setOffer: (offer: ResumeOffer) => void;
  run: Run;
}): JSX.Element {
  const { job, offer, setOffer, run } = props;
  const [isOpen, open] = React.useState(false);
  const list = React.useId();
  const change = async (step: number, action: string) => {
    const given = await run(CommandIDs.changeCheckpoint, { step, action });
    if (given) {
      setOffer(readOffer(given));
    }
  };
  const begin = (step: number) => run(CommandIDs.resume, { begin: step });
  const count = saved(offer).length;
  return (
    <>
      <div className="mnt-resume-acts">
        {hasSaved(offer) && <GoOn {...{ offer, run }} />}
        <StartOver run={run} isFirst={!hasSaved(offer)} />
        {count > 0 && (
          <button
            className="btn"
            aria-expanded={isOpen}
            aria-controls={list}
            onClick={() => open(!isOpen)}
          >
            {trans._n('%1 checkpoint', '%1 checkpoints', count)}
          </button>
        )}
      </div>
      <p>{obstacleText(offer) ?? resumeText(offer, job)}</p>
      <div id={list} hidden={!isOpen}>
        {isOpen && (
          <CheckpointTable
            offer={offer}
            begin={offer.obstacle === 'running' ? null : one => begin(one.step)}
            change={(one, action) => change(one.step, action)}
          />
        )}
      </div>
    </>
  );
}

function StartOver(props: { run: Run; isFirst: boolean }): JSX.Element {
  const { run, isFirst } = props;
  return (
    <Button
      label={trans.__('Start over…')}
      kind={isFirst ? 'pri' : undefined}
      run={() => run(CommandIDs.launchAgain)}
    />
  );
}

/** The primary button: the action that fits the run's state. */
function GoOn(props: { offer: ResumeOffer; run: Run }): JSX.Element | null {
  const { offer, run } = props;
  switch (offer.obstacle ?? null) {
    case null:
      return (
        <Button
          kind="pri"
          label={resumeLabel(offer)}
          run={() =>
            run(CommandIDs.resume, { expectedStep: offer.step ?? undefined })
          }
        />
      );
    case 'finished':
      return (
        <Button
          kind="pri"
          label={trans.__('Make more steps…')}
          title={trans.__(
            'Continue training beyond step %1',
            formats.count(offer.step)
          )}
          run={() => run(CommandIDs.resume, { more: true })}
        />
      );
    case 'running':
      return (
        <Button
          kind="pri"
          label={trans.__('Attach to %1', offer.running_job)}
          run={() => run(CommandIDs.attach, { jobId: offer.running_job })}
        />
      );
    default:
      return null;
  }
}
