/** Failure card: node, cause and fix; details folded below. */

import * as React from 'react';

import * as formats from '../../formats';
import { Icon } from '../../icons';
import {
  causeLine,
  type IProblem,
  partFailure,
  ProblemLines
} from '../../problem';
import { restartLine } from '../../words';
import type { IJobProps } from '../props';

export function FailureCard({ job, trans }: IJobProps): JSX.Element | null {
  const { problem } = job;
  if (!problem) {
    return null;
  }
  return (
    <section className="mnt-card" role="alert">
      <ProblemLines problem={problem} trans={trans}>
        <Icon name="failed" />
      </ProblemLines>
      {typeof problem.time_s === 'number' && (
        <p className="m s">
          {trans.__('at %1', formats.clock(problem.time_s, true))}
        </p>
      )}
      {job.restart && <p>{restartLine(job, trans)}</p>}
      <Leftovers job={job} trans={trans} />
      {problem.detail && (
        <details>
          <summary>{trans.__('Last output of the rank')}</summary>
          <pre tabIndex={0}>{problem.detail}</pre>
        </details>
      )}
      <Consequences job={job} trans={trans} />
    </section>
  );
}

/** Processes that could not be killed. */
function Leftovers({ job, trans }: IJobProps): JSX.Element {
  const left = job.parts.flatMap(part =>
    (part.leftovers ?? []).map(process => ({ node: part.node, process }))
  );
  return (
    <>
      {left.map(({ node, process }) => (
        <p key={`${node}-${process.pid}`}>
          {trans.__(
            '%1: process %2 (%3) could not be killed: %4',
            node,
            process.pid,
            process.command,
            process.status
          )}
        </p>
      ))}
    </>
  );
}

/** The same failure as seen on other nodes: causes only, since the card has the fix. */
function Consequences({ job, trans }: IJobProps): JSX.Element | null {
  const cause = job.problem?.cause;
  const others = job.parts
    .map(partFailure)
    .filter((one): one is IProblem => one !== null && one.cause !== cause);
  if (!others.length) {
    return null;
  }
  return (
    <details>
      <summary>
        {trans._n(
          'What followed on %1 other node',
          'What followed on %1 other nodes',
          others.length
        )}
      </summary>
      <ul>
        {others.map((one, i) => (
          <li key={i}>{causeLine(one, trans)}</li>
        ))}
      </ul>
    </details>
  );
}
