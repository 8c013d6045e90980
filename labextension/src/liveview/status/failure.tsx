/** Failure card: node, cause and fix; details folded below. */

import * as React from 'react';

import { Icon } from '../../icons';
import {
  causeLine,
  type IProblem,
  partFailure,
  ProblemLines,
  When
} from '../../problem';
import { processText } from '../../part_notes';
import { restartLine } from '../../words';
import type { IJobProps } from '../props';
import { trans } from '../../trans';

export function FailureCard({ job }: IJobProps): JSX.Element | null {
  const { problem } = job;
  if (!problem) {
    return null;
  }
  return (
    <section className="mnt-card" role="alert">
      <ProblemLines problem={problem}>
        <Icon name="failed" />
      </ProblemLines>
      {job.reasons && <p className="m s">{job.reasons}</p>}
      <When problem={problem} />
      {job.restart && <p>{restartLine(job)}</p>}
      <Leftovers job={job} />
      {problem.detail && (
        <details>
          <summary>{trans.__('Last output of the rank')}</summary>
          <pre tabIndex={0}>{problem.detail}</pre>
        </details>
      )}
      <Consequences job={job} />
    </section>
  );
}

/** Processes that could not be killed. */
function Leftovers({ job }: IJobProps): JSX.Element {
  const lines = job.parts.flatMap(({ node, leftovers }) =>
    (leftovers ?? []).map(one =>
      trans.__(
        '%1: %2 could not be killed: %3',
        node,
        processText(one),
        one.command
      )
    )
  );
  return (
    <>
      {lines.map(line => (
        <p key={line}>{line}</p>
      ))}
    </>
  );
}

/** The same failure as seen on other nodes: causes only, since the card has the fix. */
function Consequences({ job }: IJobProps): JSX.Element | null {
  const cause = job.problem?.cause;
  const others = job.parts
    .map(partFailure)
    .filter((one): one is IProblem => one !== null && one.cause !== cause)
    // What all ranks failed with has no node, and follows nothing.
    .filter(one => job.problem?.node || one.kind !== job.problem?.kind);
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
          <li key={i}>{causeLine(one)}</li>
        ))}
      </ul>
    </details>
  );
}
