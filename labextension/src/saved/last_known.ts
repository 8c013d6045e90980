/** Last known state of a job whose output the server could not make in time. */

import * as formats from '../formats';
import type { JobBundle, JobEntry, SavedOutput } from '../schema';
import { trans } from '../trans';
import { ofSteps, stateWord } from '../words';

/**
 * The kept rows with the newest state. No picture: an older one next to newer words would lie.
 *
 * @param heard Unix time of the last message from the server.
 */
export function lastKnown(
  kept: JobBundle,
  entry: JobEntry,
  heard: number
): SavedOutput {
  const { step, total_steps } = entry.numbers;
  const numbers = { ...entry.numbers, remaining_s: null };
  const steps =
    trans.__('step %1', formats.count(step)) + ofSteps(step, total_steps);
  const words = [stateWord(entry.state), entry.name, entry.job_id];
  const line = (step ? [...words, steps] : words).join(' ');
  const asOf = trans.__('As of %1.', formats.dateTime(heard));
  return {
    job: { ...kept, job: { ...entry, numbers }, saved_s: heard },
    text: `${line}\n${asOf}`,
    picture: null,
    width_px: 0
  };
}
