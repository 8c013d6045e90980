/** Confirmation before a job is stopped or killed: says what will be lost. */

import { Dialog, showDialog } from '@jupyterlab/apputils';

import { type IProblem, problemText } from '../../problem';
import type { JobEntry } from '../../schema';
import { trans } from '../../trans';

export async function isSure(
  { name, numbers }: JobEntry,
  how: 'stop' | 'kill'
): Promise<boolean> {
  const lost = numbers.step
    ? trans.__(
        'The job is at step %1. Progress since its last checkpoint will be lost.',
        numbers.step
      )
    : trans.__('The job has not finished a step yet.');
  const [title, label, effect] = {
    stop: [
      trans.__('Stop %1?', name),
      trans.__('Stop'),
      trans.__('Its processes have 2 s to exit before they are killed.')
    ],
    kill: [
      trans.__('Kill %1?', name),
      trans.__('Kill'),
      trans.__('Its processes are killed immediately.')
    ]
  }[how];
  const answer = await showDialog({
    title,
    body: `${lost} ${effect}`,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label })
    ]
  });
  return answer.button.accept;
}

/** Ask whether to launch although versions differ between the nodes. */
export async function isAcknowledged(problem: IProblem): Promise<boolean> {
  const answer = await showDialog({
    title: trans.__('Launch although versions differ?'),
    body: problemText(problem),
    defaultButton: 0,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: trans.__('Launch anyway') })
    ]
  });
  return answer.button.accept;
}
