/** Problems as text: where and what, then the fix. */

import * as React from 'react';

import * as formats from './formats';
import type { PartStatus, Problem } from './schema';
import { trans } from './trans';

/** A problem; those found by the page itself have no kind. */
export type IProblem = Omit<Problem, 'kind'> & {
  kind?: Problem['kind'];
  /** Other findings of a launch that the doctor refuses. */
  found?: Problem[];
};

/** The problem of a failed part, with its node. */
export function partFailure({ node, problem }: PartStatus): IProblem | null {
  return problem ? { ...problem, node: problem.node ?? node } : null;
}

/** The cause on one line: `muthur: rank 1: CUDA out of memory`. */
export function causeLine(problem: IProblem): string {
  const { cause, node, rank } = problem;
  return [
    ...(node ? [node] : []),
    ...(typeof rank === 'number' ? [trans.__('rank %1', rank)] : []),
    cause
  ].join(': ');
}

/** The fix on one line; `null` if none is known. */
export function fixLine({ fix }: IProblem): string | null {
  return fix ? trans.__('Fix: %1', fix) : null;
}

/** Cause and fix in one paragraph. */
export function problemText(problem: IProblem): string {
  const fix = fixLine(problem);
  const cause = causeLine(problem);
  return fix ? trans.__('%1. %2', cause, fix) : cause;
}

/** Cause and fix, a line each. */
export function ProblemLines(props: {
  problem: IProblem;
  /** Before the cause: an icon. */
  children?: React.ReactNode;
}): JSX.Element {
  const { problem, children } = props;
  const fix = fixLine(problem);
  return (
    <>
      <p className="mnt-cause">
        {children} {causeLine(problem)}
      </p>
      {fix && <p className="mnt-fix">{fix}</p>}
    </>
  );
}

/** When it happened or began, and when the evidence was taken. */
export function When({ problem }: { problem: IProblem }): JSX.Element | null {
  const [began, seen] = [problem.time_s, problem.seen_s].map(time =>
    typeof time === 'number' ? formats.clock(time, true) : null
  );
  if (!began && !seen) {
    return null;
  }
  const isOne = !seen || !began || seen === began;
  return (
    <p className="m s">
      {isOne
        ? trans.__('at %1', began ?? seen)
        : trans.__('since %1, seen at %2', began, seen)}
    </p>
  );
}
