/** Stall card: why a job makes no progress, and the fix; stacks folded below. */

import * as React from 'react';

import { Icon } from '../../icons';
import { ProblemLines, When } from '../../problem';
import type { IJobProps } from '../props';
import { trans } from '../../trans';

export function StallCard({ job }: IJobProps): JSX.Element | null {
  const { stall } = job;
  if (!stall) {
    return null;
  }
  const stacks = job.parts.flatMap(part =>
    (part.stall?.stacks ?? []).map(stack => ({ node: part.node, stack }))
  );
  return (
    <section className="mnt-card mnt-card-stall" role="alert">
      <ProblemLines problem={stall}>
        <Icon name="warning" />
      </ProblemLines>
      <When problem={stall} />
      {stacks.map(({ node, stack }) => (
        <details key={stack.rank}>
          <summary>
            {trans.__('rank %1 on %2: %3', stack.rank, node, said(stack.doing))}
            {stack.where ? `, ${stack.where}` : ''}
          </summary>
          <pre tabIndex={0}>
            {stack.text || trans.__('No stacks were received from this rank.')}
          </pre>
        </details>
      ))}
    </section>
  );
}

/** What a rank is doing, in the words of the verdict. */
function said(doing: string): string {
  return doing === 'busy' ? trans.__('in its own code') : doing;
}
