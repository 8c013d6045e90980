/** Line row: a value of a node now, next to its last hour. */

import * as React from 'react';

import { BOX, type IPastLine } from '../history/past';
import { trans } from '../trans';

export function LineRow(props: {
  name: string;
  /** For screen readers. */
  label: string;
  line: IPastLine | null;
  write: (value: number) => string;
  /** The value now. */
  children: React.ReactNode;
}): JSX.Element {
  const { name, label, line, write, children } = props;
  return (
    <div className="mnt-line-row">
      <span>{name}</span>
      {line ? (
        <svg
          className="mnt-past"
          role="img"
          aria-label={trans.__(
            '%1, last hour: %2 to %3',
            label,
            write(line.lowest),
            write(line.highest)
          )}
          viewBox={`0 -1 ${BOX.width} ${BOX.height + 2}`}
          preserveAspectRatio="none"
        >
          <path d={line.path} />
        </svg>
      ) : (
        <span />
      )}
      <span className="mnt-value">{children}</span>
    </div>
  );
}
