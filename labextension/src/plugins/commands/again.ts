/** Launches a job again. */

import type { Api } from '../../api';
import type { LaunchedJob } from '../../schema';
import { problemOf } from '../../tokens';
import { isAcknowledged } from './confirmation';

/** Launch a job again; if versions differ between its nodes, only once that is acknowledged. */
export async function launchedAgain(
  api: Api,
  jobId: string
): Promise<LaunchedJob | undefined> {
  try {
    return await api.launchAgain(jobId);
  } catch (error) {
    const problem = problemOf(error);
    if (problem.kind !== 'mixed-versions') {
      throw error;
    }
    return (await isAcknowledged(problem))
      ? api.launchAgain(jobId, true)
      : undefined;
  }
}
