/** Problems as text: where and what, then the fix. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { PartStatus, Problem } from './schema';

/** A problem; those found by the page itself have no kind. */
export type IProblem = Omit<Problem, 'kind'> & { kind?: Problem['kind'] };

/** The problem of a failed part, with its node. */
export function partFailure({ node, problem }: PartStatus): IProblem | null {
  return problem ? { ...problem, node: problem.node ?? node } : null;
}

/** The cause on one line: `muthur: rank 1: CUDA out of memory`. */
export function causeLine(problem: IProblem, trans: TranslationBundle): string {
  const { cause, node, rank } = problem;
  return [
    ...(node ? [node] : []),
    ...(typeof rank === 'number' ? [trans.__('rank %1', rank)] : []),
    cause
  ].join(': ');
}

/** The fix on one line; `null` if none is known. */
export function fixLine(
  { fix }: IProblem,
  trans: TranslationBundle
): string | null {
  return fix ? trans.__('Fix: %1', fix) : null;
}

/** Cause and fix in one paragraph. */
export function problemText(
  problem: IProblem,
  trans: TranslationBundle
): string {
  const fix = fixLine(problem, trans);
  const cause = causeLine(problem, trans);
  return fix ? trans.__('%1. %2', cause, fix) : cause;
}

/** Cause and fix, a line each. */
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
