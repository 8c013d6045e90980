/** A number: if unknown, a tooltip says why; NaN and infinity are red. */

import * as React from 'react';

import { isKnown, type Maybe, nonFinite, type NonFinite } from './formats';

export function Measured<Value extends Maybe | NonFinite>(props: {
  value: Value;
  write: (value: Value) => string;
  /** Why it is unknown. */
  reason?: string;
  /** Tooltip of a known number. */
  more?: string;
}): JSX.Element {
  const { value, write, reason, more } = props;
  const text = write(value);
  if (!isKnown(value)) {
    return (
      <span className="mnt-absent" title={reason}>
        {text}
      </span>
    );
  }
  if (nonFinite(value)) {
    return <span className="mnt-alarm">{text}</span>;
  }
  return more ? <span title={more}>{text}</span> : <>{text}</>;
}
