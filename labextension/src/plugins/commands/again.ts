/** Launches that are refused at first, and repeated once the user confirms. */

import type { Anyway } from '../../api';
import type { LaunchedJob } from '../../schema';
import { problemOf } from '../../tokens';
import { isAcknowledged, isForced } from './confirmation';

/**
 * Launch; if versions differ between its nodes, or the doctor found what stops it, again once that
 * is acknowledged, each by itself. `undefined`: it was not.
 */
export async function launched(
  launch: (anyway: Anyway) => Promise<LaunchedJob>,
  anyway: Anyway = {}
): Promise<LaunchedJob | undefined> {
  try {
    return await launch(anyway);
  } catch (error) {
    const problem = problemOf(error);
    if (problem.kind === 'mixed-versions' && !anyway.mixed_versions) {
      return (await isAcknowledged(problem))
        ? launched(launch, { ...anyway, mixed_versions: true })
        : undefined;
    }
    if (problem.found && !anyway.skips_doctor) {
      return (await isForced([problem, ...problem.found]))
        ? launched(launch, { ...anyway, skips_doctor: true })
        : undefined;
    }
    throw error;
  }
}
