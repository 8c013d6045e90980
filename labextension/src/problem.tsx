/** A problem in words: what is wrong and where, then what to do; one fix for each problem. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { PartStatus, Problem } from './schema';

/** What this page itself finds wrong has no kind. */
export type IProblem = Omit<Problem, 'kind'> & { kind?: Problem['kind'] };

/** Why a part of a job failed, with its node; `null` if it did not. */
export function partFailure({ node, problem }: PartStatus): IProblem | null {
  return problem ? { ...problem, node: problem.node ?? node } : null;
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
