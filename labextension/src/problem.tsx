/** A problem in words: what is wrong and where, then what to do; one fix for each problem. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { JobEntry, PartStatus } from './schema';

/** `cause` and `fix` are without a full stop, and name neither the node nor the rank. */
export interface IProblem {
  cause: string;
  /** Empty where nothing is known to help. */
  fix?: string;
  node?: string | null;
  rank?: number | null;
  /** The evidence: a traceback, or the last lines of a log. */
  detail?: string;
  /** Unix time at which it happened. */
  time_s?: number | null;
}

/** Why a job failed; `null` if it did not. */
export function failureOf(job: JobEntry): IProblem | null {
  const { cause, cause_node: node } = job;
  // The summary names its rank.
  return cause ? { ...cause, cause: cause.summary, node, rank: null } : null;
}

/** Why a part of a job failed; `null` if it did not. */
export function partFailure(part: PartStatus): IProblem | null {
  return part.cause
    ? {
        ...part.cause,
        cause: part.cause.summary,
        node: part.node,
        rank: null
      }
    : null;
}

/** Why a running job makes no progress; `null` while it makes some. */
export function stallOf(job: JobEntry): IProblem | null {
  const { stall } = job;
  return stall
    ? { cause: stall.summary, fix: stall.fix, time_s: stall.since_s }
    : null;
}

/** Where and what, in one line: `muthur: rank 1: CUDA out of memory`. */
export function causeLine(problem: IProblem, trans: TranslationBundle): string {
  const { cause, node, rank } = problem;
  return [
    ...(node ? [node] : []),
    ...(typeof rank === 'number' ? [trans.__('rank %1', rank)] : []),
    cause
  ].join(': ');
}

/** What to do, in one line; `null` where nothing is known to help. */
export function fixLine(
  { fix }: IProblem,
  trans: TranslationBundle
): string | null {
  return fix ? trans.__('Fix: %1', fix) : null;
}

/** All of it in one paragraph, for what takes text alone. */
export function problemText(
  problem: IProblem,
  trans: TranslationBundle
): string {
  const fix = fixLine(problem, trans);
  const cause = causeLine(problem, trans);
  return fix ? trans.__('%1. %2', cause, fix) : cause;
}

/** A line for the cause, and one for the fix. */
export function ProblemLines(props: {
  problem: IProblem;
  trans: TranslationBundle;
  /** Before the cause: an icon. */
  children?: React.ReactNode;
}): JSX.Element {
  const { problem, trans, children } = props;
  const fix = fixLine(problem, trans);
  return (
    <>
      <p className="mnt-cause">
        {children} {causeLine(problem, trans)}
      </p>
      {fix && <p className="mnt-fix">{fix}</p>}
    </>
  );
}
