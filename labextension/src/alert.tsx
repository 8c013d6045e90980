/** An alert that says why something cannot be shown. */

import * as React from 'react';

import { Icon } from './icons';
import { type IProblem, ProblemLines } from './problem';

export function Alert(props: {
  problem: IProblem;
  /** Below it: what can be done. */
  children?: React.ReactNode;
}): JSX.Element {
  return (
    <div role="alert">
      <ProblemLines problem={props.problem}>
        <Icon name="warning" />
      </ProblemLines>
      {props.children}
    </div>
  );
}
