/** Flag above all charts: time, step and tokens of the sample pointed at. */

import * as React from 'react';

import { pixelOf, type Range } from '../axis/range';
import type { IArea } from './overlay';

/** Kept clear of the edges, in pixels. */
const MARGIN = 4;

export function Flag(props: {
  area: IArea;
  width: number;
  span: Range;
  x: number | null;
  text: string;
}): JSX.Element {
  const { area, width, span, x, text } = props;
  const flag = React.useRef<HTMLSpanElement>(null);
  const [own, setOwn] = React.useState(0);
  React.useLayoutEffect(() => {
    setOwn(flag.current?.offsetWidth ?? 0);
  }, [text]);
  const at = x === null ? 0 : pixelOf(x, span, area.left, area.width);
  const left = Math.max(0, Math.min(at - MARGIN, width - own));
  return (
    <div className="mnt-flag-row">
      {x !== null && (
        <span ref={flag} className="mnt-flag" style={{ left }}>
          {text}
        </span>
      )}
    </div>
  );
}
