/** Warnings card: why the numbers of a job that has not failed are doubtful. */

import * as React from 'react';

import { Icon } from '../../icons';
import { ProblemLines, When } from '../../problem';
import { trans } from '../../trans';
import type { IJobProps } from '../props';

export function WarningsCard({ job }: IJobProps): JSX.Element | null {
  const { warnings = [] } = job;
  if (!warnings.length) {
    return null;
  }
  return (
    <section className="mnt-card mnt-card-stall" role="alert">
      {warnings.map(problem => (
        <div key={problem.kind}>
          <ProblemLines problem={problem}>
            <Icon name="warning" />
          </ProblemLines>
          <When problem={problem} />
          {problem.detail && (
            <details>
              <summary>{trans.__('Last output of the rank')}</summary>
              <pre tabIndex={0}>{problem.detail}</pre>
            </details>
          )}
        </div>
      ))}
    </section>
  );
}
