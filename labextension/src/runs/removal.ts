/** What deleting a run, or one of its jobs, means, in words. Pure. */

import * as formats from '../formats';
import type { JobEntry, JobRemoval } from '../schema';
import { trans } from '../trans';
import { savedStep } from '../words';

/** From here on, MiB are shown as a number. */
const SMALL_BYTES = 2 ** 20;

export interface IRemovalText {
  lines: string[];
  /** Whether checkpoints would be of no use any more. */
  hasCheckpoints: boolean;
}

/** `isWhole`: no other job of the run is left. */
export function removalText(
  jobs: ReadonlyArray<JobEntry>,
  plans: ReadonlyArray<JobRemoval>,
  isWhole: boolean
): IRemovalText {
  const parts = plans.flatMap(plan => plan.nodes);
  const nodes = [...new Set(parts.map(part => part.node))];
  const silent = [...new Set(plans.flatMap(plan => plan.silent ?? []))];
  const size = parts.reduce((sum, part) => sum + part.size_bytes, 0);
  const saved = parts.filter(part => part.checkpoints);
  const hasCheckpoints =
    saved.length > 0 || (isWhole && jobs.some(job => savedStep(job) !== null));
  return {
    hasCheckpoints,
    lines: [
      trans._n(
        'The record, samples and logs of %2, %3 on %4, are deleted.',
        'The records, samples and logs of %1 jobs, %3 on %4, are deleted.',
        jobs.length,
        jobs[0].job_id,
        size < SMALL_BYTES ? trans.__('less than 1 MiB') : formats.memory(size),
        nodes.length ? nodes.join(', ') : trans.__('no node')
      ),
      ...(hasCheckpoints ? [checkpointLine(saved)] : []),
      ...(isWhole
        ? []
        : [trans.__('The run’s other jobs and its checkpoints stay.')]),
      ...(silent.length
        ? [
            trans._n(
              '%2 does not answer and keeps it.',
              '%2 do not answer and keep it.',
              silent.length,
              silent.join(', ')
            )
          ]
        : [])
    ]
  };
}

function checkpointLine(saved: JobRemoval['nodes']): string {
  const bytes = saved.reduce(
    (sum, one) => sum + (one.checkpoints_bytes ?? 0),
    0
  );
  const size = bytes ? ` (${formats.memory(bytes)})` : '';
  return trans.__(
    'Its only checkpoints%1 stay on the nodes unless you choose otherwise, but the run can no longer be resumed.',
    size
  );
}
