/** Dialogs before a run is resumed, starts over, makes more steps or loses a checkpoint. */

import {
  Dialog,
  InputDialog,
  ReactWidget,
  showDialog
} from '@jupyterlab/apputils';
import * as React from 'react';

import * as formats from '../formats';
import type { JobEntry, ResumeOffer } from '../schema';
import { trans } from '../trans';
import { CheckpointTable, type ITableProps } from './table';
import {
  deletionText,
  obstacleText,
  readOffer,
  resumeLabel,
  resumeText,
  saved
} from './texts';

/** Explain what resuming means. Returns whether to resume or start over; `null` = neither. */
export async function askToResume(
  job: JobEntry,
  offer: ResumeOffer
): Promise<'resume' | 'start-over' | null> {
  const obstacle = obstacleText(offer);
  const over = Dialog.createButton({
    label: trans.__('Start over…'),
    className: 'mnt-start-over'
  });
  const answer = await showDialog({
    title: trans.__('Resume %1?', job.name),
    body: obstacle ?? resumeText(offer, job),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      over,
      ...(obstacle ? [] : [Dialog.okButton({ label: resumeLabel(offer) })])
    ]
  });
  if (!answer.button.accept) {
    return null;
  }
  return answer.button.className === over.className ? 'start-over' : 'resume';
}

/** Explain that starting over begins at step 1. Returns whether to. */
export async function askToStartOver(job: JobEntry): Promise<boolean> {
  const answer = await showDialog({
    title: trans.__('Start %1 over?', job.name),
    body: trans.__(
      'A new run with the same settings begins at step 1. What this run has saved stays.'
    ),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.okButton({ label: trans.__('Start over') })
    ]
  });
  return answer.button.accept;
}

/** Ask how many steps a finished run should make in total; `null` = none. */
export async function askForSteps(offer: ResumeOffer): Promise<number | null> {
  const made = offer.step ?? 0;
  const answer = await InputDialog.getNumber({
    title: trans.__('Make more steps'),
    label: trans.__(
      'Steps in all; %1 are done. A decaying learning rate is stretched over all of them.',
      formats.count(made)
    ),
    value: 2 * made,
    okLabel: trans.__('Go on')
  });
  return answer.button.accept ? answer.value : null;
}

/** Explain what is lost with a checkpoint. Returns whether to delete it. */
export async function askToDelete(
  offer: ResumeOffer,
  step: number
): Promise<boolean> {
  const one = saved(offer).find(other => other.step === step);
  const answer = await showDialog({
    title: trans.__('Delete the checkpoint of step %1?', formats.count(step)),
    body: one ? deletionText(offer, one) : '',
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: trans.__('Delete') })
    ]
  });
  return answer.button.accept;
}

interface IListProps extends Omit<ITableProps, 'change'> {
  /** The list as it is after the change, or nothing. */
  change: (
    ...given: Parameters<ITableProps['change']>
  ) => Promise<ResumeOffer | undefined>;
}

/** Show the list of checkpoints. */
export async function showCheckpoints(
  job: JobEntry,
  props: IListProps
): Promise<void> {
  const body = ReactWidget.create(<List {...props} />);
  body.addClass('mnt');
  await showDialog({
    title: trans.__('Checkpoints of %1', job.name),
    body,
    buttons: [Dialog.okButton({ label: trans.__('Close') })]
  });
}

function List({ offer, begin, change }: IListProps): JSX.Element {
  const [shown, show] = React.useState(offer);
  return (
    <CheckpointTable
      offer={shown}
      begin={begin}
      change={async (one, action) => {
        const given = await change(one, action);
        if (given) {
          show(readOffer(given));
        }
      }}
    />
  );
}
