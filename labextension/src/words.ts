/** The words for states, in the user's language. */

import type { TranslationBundle } from '@jupyterlab/translation';

import * as formats from './formats';
import type { JobEntry } from './schema';

export const OVER = new Set(['succeeded', 'failed', 'canceled']);

export function stateWord(state: string, trans: TranslationBundle): string {
  const words: Record<string, string> = {
    up: trans.__('up'),
    suspect: trans.__('suspect'),
    lost: trans.__('lost'),
    connecting: trans.__('connecting'),
    pending: trans.__('pending'),
    starting: trans.__('starting'),
    running: trans.__('running'),
    stopping: trans.__('stopping'),
    succeeded: trans.__('succeeded'),
    failed: trans.__('failed'),
    canceled: trans.__('canceled'),
    unknown: trans.__('unknown')
  };
  return words[state] ?? state;
}

/** `node: cause` of a job that failed, or why it does not get on, in one line. */
export function causeLine(job: JobEntry): string | null {
  if (!job.cause) {
    return job.stall ? job.stall.summary : null;
  }
  return job.cause_node
    ? `${job.cause_node}: ${job.cause.summary}`
    : job.cause.summary;
}

/** What is to come after an attempt that failed; `null` if nothing is. */
export function restartLine(
  job: JobEntry,
  trans: TranslationBundle
): string | null {
  const { restart } = job;
  if (!restart) {
    return null;
  }
  if (job.attempt === 0) {
    return restart.waits_for
      ? trans.__('in the queue: %1', restart.waits_for)
      : trans.__('in the queue');
  }
  return restart.waits_for
    ? trans.__('attempt %1 waits: %2', restart.number, restart.waits_for)
    : trans.__(
        'attempt %1 begins at %2',
        restart.number,
        formats.clock(restart.at_s, true)
      );
}

/** Whether its ranks save a checkpoint when they are asked to. */
export function saves(job: JobEntry): boolean {
  return job.parts.some(part => part.saves && part.state === 'running');
}

/** Of the newest checkpoint that is whole; `null` if there is none. */
export function savedStep(job: JobEntry): number | null {
  const steps = job.parts.map(part => part.saved_step ?? 0);
  return Math.max(0, ...steps) || null;
}

/** A share of its steps, 0..1; `null` when nobody knows how many there are. */
export function progressOf(job: JobEntry): number | null {
  const { step, total_steps } = job.numbers;
  return total_steps ? Math.min(1, (step ?? 0) / total_steps) : null;
}
