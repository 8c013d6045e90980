/** Why a job failed: node, cause, fix; the evidence folded below. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import * as formats from '../../formats';
import { Icon } from '../../icons';
import type { JobEntry } from '../../schema';
import { restartLine } from '../../words';

interface IProps {
  job: JobEntry;
  trans: TranslationBundle;
}

export function FailureCard({ job, trans }: IProps): JSX.Element | null {
  const { cause, cause_node: node } = job;
  if (!cause) {
    return null;
  }
  return (
    <section className="mnt-card" role="alert">
      <p className="mnt-card-cause">
        <Icon name="failed" /> {node ? `${node}: ` : ''}
        {cause.summary}
      </p>
      <p className="m s">
        {trans.__('at %1', formats.clock(cause.time_s, true))}
        {typeof cause.rank === 'number' &&
          `, ${trans.__('rank %1', cause.rank)}`}
      </p>
      {cause.fix && <p>{trans.__('Fix: %1', cause.fix)}</p>}
      {job.restart && <p>{restartLine(job, trans)}</p>}
      <Leftovers job={job} trans={trans} />
      {cause.detail && (
        <details>
          <summary>{trans.__('Last output of the rank')}</summary>
          <pre tabIndex={0}>{cause.detail}</pre>
        </details>
      )}
      <Consequences job={job} trans={trans} />
    </section>
  );
}

/** Processes that outlived the job, each by its node and pid. */
function Leftovers({ job, trans }: IProps): JSX.Element {
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

/** What other nodes say of the same failure, where it is not the cause itself. */
function Consequences({ job, trans }: IProps): JSX.Element | null {
  const others = job.parts.filter(
    part => part.cause && part.cause.summary !== job.cause?.summary
  );
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
        {others.map(part => (
          <li key={part.node_id}>
            {part.node}: {part.cause!.summary}
          </li>
        ))}
      </ul>
    </details>
  );
}
