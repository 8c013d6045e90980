/** Sentences on how a run can be resumed. Pure. */

import * as formats from '../formats';
import { causeLine, type IProblem, problemText } from '../problem';
import type { JobEntry, ResumeOffer, RunCheckpoint } from '../schema';
import { trans } from '../trans';

export const isWhole = (one: RunCheckpoint) => !one.missing?.length;

/** The run's checkpoints, the newest first. */
export function saved(offer: ResumeOffer): RunCheckpoint[] {
  return offer.checkpoints.checkpoints ?? [];
}

/** Whether the run can be resumed: from a complete checkpoint, or from a script's own. */
export function hasSaved(offer: ResumeOffer): boolean {
  return saved(offer).some(isWhole) || offer.obstacle === null;
}

/** An offer as the page uses it: fields that a message lacks are `null`. */
export function readOffer(offer: ResumeOffer): ResumeOffer {
  return { ...offer, obstacle: offer.obstacle ?? null };
}

/** The words of the primary button. */
export function resumeLabel({ step }: ResumeOffer): string {
  return typeof step === 'number'
    ? trans.__('Resume from step %1', formats.count(step))
    : trans.__('Resume');
}

/** What is repeated, what was changed, and whether the losses will be those of an unbroken run. */
export function resumeText(offer: ResumeOffer, job: JobEntry): string {
  return [
    ...(offer.losses === 'by-script' ? [] : [repeatsText(offer, job)]),
    changesText(offer),
    ...silenceTexts(offer)
  ].join(' ');
}

function repeatsText(offer: ResumeOffer, { numbers }: JobEntry): string {
  const count = (offer.reached ?? 0) - (offer.step ?? 0);
  if (count <= 0) {
    return trans.__('No step is repeated.');
  }
  const steps = trans._n(
    '%1 step is repeated',
    '%1 steps are repeated',
    count,
    formats.count(count)
  );
  return numbers.step_s
    ? trans.__('%1 (%2).', steps, formats.duration(count * numbers.step_s))
    : trans.__('%1.', steps);
}

function changesText(offer: ResumeOffer): string {
  const changes = (offer.changes ?? []).join(', ');
  const changed = changes ? `${trans.__('Changed: %1.', changes)} ` : '';
  switch (offer.losses) {
    case 'by-script':
      return (
        changed + trans.__('The script itself continues from what it saved.')
      );
    case 'other':
      return (
        changed +
        trans.__('The losses will differ from those of an unbroken run.')
      );
    case 'rounding':
      return (
        changed +
        trans.__(
          'The losses will be those of an unbroken run, except for rounding.'
        )
      );
    default:
      return changed
        ? changed +
            trans.__('The losses will still be those of an unbroken run.')
        : trans.__(
            'Same nodes and settings, so the losses will be those of an unbroken run.'
          );
  }
}

function silenceTexts({ checkpoints }: ResumeOffer): string[] {
  return (checkpoints.silent ?? []).map(node =>
    trans.__('%1 does not answer: what it has saved is not known.', node)
  );
}

/** Why the run cannot be resumed, and what to do in the page; `null` if it can. */
export function obstacleText(offer: ResumeOffer): string | null {
  const { obstacle, running_job, problem } = offer;
  switch (obstacle ?? null) {
    case null:
      return null;
    case 'running':
      return trans.__('%1 of the same run has not ended.', running_job);
    case 'finished':
      return trans.__(
        'All of its %1 steps are done.',
        formats.count(offer.steps)
      );
    case 'nothing-saved':
      return [
        trans.__('This run has saved nothing to resume from.'),
        ...silenceTexts(offer)
      ].join(' ');
    case 'not-whole':
      return `${problemText(notWhole(offer))}.`;
    default:
      return problem ? `${causeLine(problem)}.` : null;
  }
}

function notWhole(offer: ResumeOffer): IProblem {
  const newest = saved(offer)[0];
  const step = formats.count(newest.step);
  if (isWhole(newest)) {
    return {
      cause: trans.__(
        'The nodes of this job do not have all of checkpoint %1',
        step
      ),
      fix: trans.__('launch on the nodes that have it, listed below')
    };
  }
  const nodes = (newest.missing_on ?? []).join(', ');
  const start = nodes
    ? trans.__('start %1 again', nodes)
    : trans.__('start all nodes of the run again');
  return {
    cause: nodes
      ? trans.__(
          'Checkpoint %1 is incomplete: the part on %2 is missing',
          step,
          nodes
        )
      : trans.__('Checkpoint %1 is incomplete', step),
    fix: saved(offer).some(isWhole)
      ? trans.__('%1, or start a new run from an older one below', start)
      : start
  };
}

/** The state of one checkpoint in the list. */
export function checkpointState(
  offer: ResumeOffer,
  one: RunCheckpoint
): string {
  const states = isWhole(one)
    ? [trans.__('whole')]
    : [
        one.missing_on?.length
          ? trans.__(
              'incomplete: the part on %1 is missing',
              one.missing_on.join(', ')
            )
          : trans.__('incomplete')
      ];
  return [
    ...states,
    ...(one === saved(offer)[0] ? [trans.__('newest')] : []),
    ...(one.is_best ? [trans.__('best evaluation loss')] : []),
    ...(one.is_pinned ? [trans.__('pinned')] : [])
  ].join(', ');
}

/** What deleting a checkpoint means. */
export function deletionText(offer: ResumeOffer, one: RunCheckpoint): string {
  const others = saved(offer).filter(other => other !== one && isWhole(other));
  const where = Object.keys(one.nodes).join(', ');
  const from = where ? trans.__('It is deleted on %1.', where) : '';
  if (!isWhole(one)) {
    return from;
  }
  const rest = others.length
    ? trans.__(
        'The run can then be resumed from step %1 at best.',
        formats.count(Math.max(...others.map(other => other.step)))
      )
    : trans.__(
        'It is the only complete one: without it the run cannot be resumed.'
      );
  return `${from} ${rest}`;
}

/** A refusal of the server, with a fix that the page offers instead of a terminal command. */
export function pageProblem(problem: IProblem): IProblem {
  switch (problem.kind) {
    case 'still-running':
      return { ...problem, fix: trans.__('wait for its end, or stop it') };
    case 'no-checkpoint':
      return {
        ...problem,
        fix: trans.__('choose another one from the list, or start over')
      };
    default:
      return problem;
  }
}
