/** States and progress of jobs and nodes as text. */

import * as formats from './formats';
import { causeLine } from './problem';
import type { JobEntry, NodeView, RankProgress, RankStatus } from './schema';
import { CommandIDs } from './tokens';
import { trans } from './trans';

export type JobState = JobEntry['state'];
export type Liveness = NodeView['liveness'];

const ENDED: ReadonlyArray<JobState> = ['succeeded', 'failed', 'canceled'];

/** States in which a job is over. */
export const OVER: ReadonlySet<string> = new Set(ENDED);

export function stateWord(state: JobState | Liveness): string {
  const words: Record<JobState | Liveness, string> = {
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

/** When the next attempt starts, or what it is waiting for; `null` without one. */
export function restartLine({ attempt, restart }: JobEntry): string | null {
  if (!restart) {
    return null;
  }
  const cause = restart.waits_for && causeLine(restart.waits_for);
  if (attempt === 0) {
    return cause ? trans.__('queued: %1', cause) : trans.__('queued');
  }
  const { number } = restart;
  const start = formats.clock(restart.at_s, true);
  return cause
    ? trans.__('attempt %1 is waiting: %2', number, cause)
    : trans.__('attempt %1 starts at %2', number, start);
}

/** How often a loss or a gradient norm was NaN or infinite, and when first; `null` if never. */
export function notFiniteLine(numbers: JobEntry['numbers']): string | null {
  const { not_finite: steps, first_not_finite_step: first } = numbers;
  return steps
    ? trans._n(
        'NaN or infinite loss or gradient in %1 step, first in step %2',
        'NaN or infinite loss or gradient in %1 steps, first in step %2',
        steps,
        formats.count(first)
      )
    : null;
}

/** A rank of a job, and its node. */
export type PlacedRank = RankStatus & { node: string };

/** All ranks of a job, in order. */
export function ranksOf(job: JobEntry): PlacedRank[] {
  return job.parts.flatMap(({ node, ranks }) =>
    (ranks ?? []).map(rank => ({ ...rank, node }))
  );
}

/** Text like `loading the model, 40 %`: a rank's activity other than steps. */
export function activity(progress: RankProgress): string {
  const { what, done, total, unit, per_s } = progress;
  const words = [what];
  if (total) {
    words.push(formats.percent(Math.min(1, done / total), 0));
  } else if (done && unit === 'B') {
    words.push(formats.memory(done));
  }
  if (per_s && unit === 'B') {
    words.push(formats.byteRate(per_s));
  }
  const left = total && per_s ? (total - done) / per_s : 0;
  if (left >= 5) {
    words.push(trans.__('%1 left', formats.duration(left)));
  }
  return words.join(', ');
}

/** Whether the job can save a checkpoint now. */
export function saves(job: JobEntry): boolean {
  return job.parts.some(part => part.saves && part.state === 'running');
}

/** Step of the newest complete checkpoint; `null` if there is none. */
export function savedStep(job: JobEntry): number | null {
  const steps = job.parts.map(part => part.saved_step ?? 0);
  return Math.max(0, ...steps) || null;
}

/**
 * Step of the newest checkpoint of a later step that somebody asked for, as far as is known; of a
 * job that has ended, of any. `null` if there is none: one that was due may come first.
 */
export function requestedSave(job: JobEntry, after: number): number | null {
  const steps = job.parts
    .flatMap(part => part.saved ?? [])
    .filter(one => !one.is_scheduled)
    .map(one => one.step);
  const newest = OVER.has(job.state) ? (savedStep(job) ?? 0) : 0;
  const step = Math.max(newest, ...steps);
  return step > after ? step : null;
}

/** Step that an ended job could resume from, as its ranks reported; `null` if they did not. */
export function canGoOnFrom(job: JobEntry): number | null {
  const steps = job.parts.map(
    part => part.saved_step ?? part.resumed_step ?? 0
  );
  return (OVER.has(job.state) && Math.max(0, ...steps)) || null;
}

/** Whether another job has the same name: then its id is shown, too. */
export function hasNamesake(
  job: JobEntry,
  jobs: ReadonlyArray<JobEntry>
): boolean {
  return jobs.some(
    other => other.name === job.name && other.job_id !== job.job_id
  );
}

/** When the last of its parts ended; `null` while it runs, or if unknown. */
export function endedAt(job: JobEntry): number | null {
  const ends = job.parts.map(part => part.ended_s ?? 0);
  return OVER.has(job.state) ? Math.max(0, ...ends) || null : null;
}

/** Share of steps done, 0..1; `null` if their number is unknown. */
/** Suffix of a step number: the total, if it was reported and is plausible. */
export function ofSteps(step: formats.Maybe, total: formats.Maybe): string {
  if (!total) {
    return '';
  }
  return (step ?? 0) > total
    ? trans.__(', more than the %1 that it reported', formats.count(total))
    : trans.__(' of %1', formats.count(total));
}

export function progressOf(job: JobEntry): number | null {
  const { step, total_steps } = job.numbers;
  return total_steps ? Math.min(1, (step ?? 0) / total_steps) : null;
}

interface IAction {
  command: string;
  label: string;
  kind?: 'dan';
  title?: string;
  isOff?: boolean;
}

/** Actions that a job's state allows. */
export function jobActions(job: JobEntry): IAction[] {
  if (OVER.has(job.state)) {
    return [
      ...(canGoOnFrom(job) === null
        ? []
        : [{ command: CommandIDs.resume, label: trans.__('Resume…') }]),
      { command: CommandIDs.launchAgain, label: trans.__('Start over…') }
    ];
  }
  const isOff = job.state === 'stopping';
  const save: IAction = {
    command: CommandIDs.save,
    label: trans.__('Save'),
    title: trans.__('Save a checkpoint after the current step')
  };
  return [
    ...(saves(job) ? [save] : []),
    {
      command: CommandIDs.stop,
      label: isOff ? trans.__('Stopping…') : trans.__('Stop'),
      isOff
    },
    { command: CommandIDs.kill, label: trans.__('Kill'), kind: 'dan' }
  ];
}
