/** Confirmation before a job is stopped or killed: says what will be lost. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import type { JobEntry } from '../../schema';

export async function isSure(
  job: JobEntry,
  how: 'stop' | 'kill',
  trans: TranslationBundle
): Promise<boolean> {
  const isHard = how === 'kill';
  const verb = isHard ? trans.__('Kill') : trans.__('Stop');
  const step = job.numbers.step ?? 0;
  const body = [
    step
      ? trans.__(
          'The job is at step %1. Progress since its last checkpoint will be lost.',
          step
        )
      : trans.__('The job has not finished a step yet.'),
    isHard
      ? trans.__('Its processes are killed immediately.')
      : trans.__('Its processes have 2 s to exit before they are killed.')
  ];
  const answer = await showDialog({
    title: isHard
      ? trans.__('Kill %1?', job.name)
      : trans.__('Stop %1?', job.name),
    body: body.join(' '),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: verb })
    ]
  });
  return answer.button.accept;
}
