/** Part notes: what keeps parts of a job from ending, and which cannot be stored. */

import * as React from 'react';

import { ProblemLines } from './problem';
import type { JobEntry, Leftover } from './schema';
import { trans } from './trans';

export function PartNotes({ job }: { job: JobEntry }): JSX.Element {
  return (
    <>
      {job.parts.map(({ node, waits_for: held, state_problem: problem }) => (
        <React.Fragment key={node}>
          {problem && <ProblemLines problem={{ ...problem, node }} />}
          {!!held?.length && (
            <p className="s" role="status">
              {trans.__(
                '%1: stopping, waiting for %2',
                node,
                held.map(processText).join(', ')
              )}
            </p>
          )}
        </React.Fragment>
      ))}
    </>
  );
}

/** Like `pid 123 python (uninterruptible, nfs_wait)`. */
export function processText(one: Leftover): string {
  const words: Record<string, string> = {
    D: trans.__('uninterruptible'),
    T: trans.__('stopped by a signal'),
    t: trans.__('stopped by a debugger')
  };
  const name = one.command.split(' ')[0].split('/').pop();
  const state = words[one.status.slice(0, 2).trim()] ?? one.status;
  const facts = [state, one.waits_in].filter(Boolean).join(', ');
  return [trans.__('pid %1', one.pid), name, `(${facts})`]
    .filter(Boolean)
    .join(' ');
}
