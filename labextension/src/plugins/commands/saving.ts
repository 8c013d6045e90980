/** Notice of a save: says at once what it waits for, and later how it ended. */

import { Notification } from '@jupyterlab/apputils';

import { count } from '../../formats';
import type { JobEntry } from '../../schema';
import type { IClusterModel } from '../../tokens';
import { trans } from '../../trans';
import { OVER, requestedSave, savedStep } from '../../words';

/** How long the outcome stays. */
const SAID_MS = 8000;

/** Follow a save that the nodes have accepted. */
export function tellSave(
  model: IClusterModel,
  job: JobEntry,
  andStop: boolean
): void {
  const { job_id, name, numbers, attempt } = job;
  const before = savedStep(job) ?? 0;
  const next = count((numbers.step ?? 0) + 1);
  const id = Notification.emit(
    andStop
      ? trans.__('%1 will save after step %2, then stop.', name, next)
      : trans.__('%1 will save after step %2.', name, next),
    'in-progress',
    { autoClose: false }
  );
  const finish = (message: string, type: 'success' | 'warning') => {
    model.changed.disconnect(look);
    Notification.update({ id, message, type, autoClose: SAID_MS });
  };
  const look = () => {
    const now = model.job(job_id);
    const saved = now && requestedSave(now, before);
    if (now?.attempt === attempt && saved) {
      finish(trans.__('%1 has saved step %2.', name, count(saved)), 'success');
    } else if (!now || now.attempt !== attempt || OVER.has(now.state)) {
      finish(trans.__('%1 ended before it saved.', name), 'warning');
    }
  };
  model.changed.connect(look);
  look();
}
