/** Confirmation before a job is stopped or killed: says what will be lost, and offers to save. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { count } from '../../formats';
import { type IProblem, problemText } from '../../problem';
import type { JobEntry, WaitingLaunch } from '../../schema';
import { trans } from '../../trans';
import { savedStep, saves } from '../../words';

/** `save`: save a checkpoint, then stop. `null`: do nothing. */
export type Decision = 'save' | 'stop' | 'kill' | null;

export async function decide(
  job: JobEntry,
  how: 'stop' | 'kill'
): Promise<Decision> {
  const { title, label, effect } = words(job, how);
  const canSave = how === 'stop' && saves(job);
  const saving = Dialog.okButton({
    label: trans.__('Save, then stop'),
    actions: ['save']
  });
  const ending = Dialog.warnButton({ label, actions: [how] });
  const answer = await showDialog({
    title,
    body: `${atStake(job)} ${effect}`,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      ...(canSave ? [saving] : []),
      ending
    ],
    // Enter does no harm: the first button has the focus, and ends nothing.
    defaultButton: 0
  });
  const [action] = answer.button.accept ? answer.button.actions : [];
  return (action as Decision | undefined) ?? null;
}

function words(
  job: JobEntry,
  how: 'stop' | 'kill'
): Record<'title' | 'label' | 'effect', string> {
  return how === 'stop'
    ? {
        title: trans.__('Stop %1 (%2)?', job.name, job.job_id),
        label: saves(job) ? trans.__('Stop without saving') : trans.__('Stop'),
        effect: trans.__(
          'Its processes have 2 s to exit before they are killed.'
        )
      }
    : {
        title: trans.__('Kill %1 (%2)?', job.name, job.job_id),
        label: trans.__('Kill'),
        effect: trans.__('Its processes are killed immediately.')
      };
}

/** What would be lost. */
function atStake(job: JobEntry): string {
  const { step } = job.numbers;
  if (!step) {
    return trans.__('The job has not finished a step yet.');
  }
  const saved = savedStep(job);
  return saved === null
    ? trans.__(
        'The job is at step %1 and has saved no checkpoint: all of it will be lost.',
        count(step)
      )
    : trans.__(
        'The job is at step %1, and its newest checkpoint is from step %2: what came after will be lost.',
        count(step),
        count(saved)
      );
}

/** Ask whether to launch although versions differ between the nodes. */
export async function isAcknowledged(problem: IProblem): Promise<boolean> {
  return isAnyway(
    trans.__('Launch although versions differ?'),
    problemText(problem)
  );
}

/** Ask whether to launch although the doctor refuses it: with all that it found. */
export async function isForced(found: IProblem[]): Promise<boolean> {
  return isAnyway(
    trans.__('Launch although the doctor found this?'),
    found.map(problemText).join('\n\n')
  );
}

/** Ask whether to cancel a launch that waits for nodes. */
export async function isCanceled(launch: WaitingLaunch): Promise<boolean> {
  const { allocation, cluster, job_id, name, source, state } = launch;
  const given =
    state === 'pending'
      ? trans.__('Job %1 leaves the queue of %2.', allocation, source)
      : trans.__(
          'Job %1 of %2 ends, and its nodes are given back.',
          allocation,
          source
        );
  return isAnyway(
    trans.__('Cancel %1 (%2)?', name, cluster),
    job_id
      ? `${given} ${trans.__('%1 will not continue; what it has saved is kept.', job_id)}`
      : given,
    trans.__('Cancel the launch'),
    trans.__('Keep waiting')
  );
}

async function isAnyway(
  title: string,
  text: string,
  yes = trans.__('Launch anyway'),
  no = trans.__('Cancel')
): Promise<boolean> {
  const body = new Widget();
  body.addClass('mnt-told');
  body.node.textContent = text;
  const answer = await showDialog({
    title,
    body,
    defaultButton: 0,
    buttons: [
      Dialog.cancelButton({ label: no }),
      Dialog.warnButton({ label: yes })
    ]
  });
  return answer.button.accept;
}
