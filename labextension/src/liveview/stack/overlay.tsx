/** Overlay of a chart: the pointer, a dot on each line, and the selected range. */

import * as React from 'react';

import { pixelOf, type Range } from '../axis/range';

/** Pixels above the plotted area. */
export const TOP = 6;

interface IDot {
  key: string;
  color: string;
  /** On the horizontal axis; NaN if nothing is there. */
  x: number;
  /** Pixels from the top. */
  y: number;
}

export interface IArea {
  left: number;
  width: number;
}

export function Overlay(props: {
  area: IArea;
  height: number;
  span: Range;
  pointed: number | null;
  selection: Range | null;
  dots: IDot[];
}): JSX.Element | null {
  const { area, height, span, pointed, selection, dots } = props;
  if (pointed === null && !selection) {
    return null;
  }
  const place = (x: number) => pixelOf(x, span, area.left, area.width);
  const isInside = (x: number) => x >= span[0] && x <= span[1];
  return (
    <svg className="mnt-overlay" style={{ height }} aria-hidden="true">
      {selection && (
        <rect
          className="mnt-selected"
          x={place(Math.max(selection[0], span[0]))}
          width={Math.max(
            1,
            place(Math.min(selection[1], span[1])) -
              place(Math.max(selection[0], span[0]))
          )}
          y={TOP}
          height={height - TOP}
        />
      )}
      {pointed !== null && isInside(pointed) && (
        <path
          className="mnt-pointer"
          data-x={pointed}
          d={`M${place(pointed)} ${TOP}V${height}`}
        />
      )}
      {pointed !== null &&
        dots
          .filter(dot => isInside(dot.x) && Number.isFinite(dot.y))
          .map(dot => (
            <circle
              key={dot.key}
              className="mnt-dot"
              data-line={dot.key}
              cx={place(dot.x)}
              cy={dot.y}
              r={3.5}
              fill={dot.color}
            />
          ))}
    </svg>
  );
}
