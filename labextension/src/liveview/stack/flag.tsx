/** Flag above all charts: time, step and tokens of the sample pointed at. */

import * as React from 'react';

import { pixelOf, type Range } from '../axis/range';
import type { IArea } from './overlay';

/** Kept clear of the edges, in pixels. */
const MARGIN = 4;

/** What is said instead, and where, in pixels. */
export interface ISaid {
  x: number;
  text: string;
}

export function Flag(props: {
  area: IArea;
  width: number;
  span: Range;
  /** The sample pointed at, on the horizontal axis. */
  x: number | null;
  text: string;
  /** Of an event that is pointed at or focused. */
  said: ISaid | null;
}): JSX.Element {
  const { area, width, span, x, said } = props;
  const flag = React.useRef<HTMLSpanElement>(null);
  const [own, setOwn] = React.useState(0);
  const text = said?.text ?? props.text;
  React.useLayoutEffect(() => {
    setOwn(flag.current?.offsetWidth ?? 0);
  }, [text, width]);
  const at =
    said?.x ?? (x === null ? 0 : pixelOf(x, span, area.left, area.width));
  const left = Math.max(0, Math.min(at - MARGIN, width - own));
  return (
    <div className="mnt-flag-row">
      {(said || x !== null) && (
        <span ref={flag} className="mnt-flag" style={{ left, maxWidth: width }}>
          {text}
        </span>
      )}
    </div>
  );
}
