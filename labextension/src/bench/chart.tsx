/** Bench chart: bus bandwidth by message size, a line per operation, with the line rate. */

import * as React from 'react';

import * as formats from '../formats';
import type { BenchReport } from '../schema';
import { trans } from '../trans';
import { OPERATIONS, sizesOf, sizeText } from './words';

const WIDTH = 320;
const HEIGHT = 120;
const ROOM = 1.1;

/** Labels are in the list below, as narrow places have no room next to the line. */
export function BenchChart({ report }: { report: BenchReport }): JSX.Element {
  const { line_bytes_per_s: line, sizes = [] } = report;
  const all = [...new Set(sizes.map(one => one.size_bytes))].sort(
    (one, other) => one - other
  );
  const [least, most] = [all[0], Math.max(all[all.length - 1], 2 * all[0])];
  const top =
    ROOM * Math.max(1, line ?? 0, ...sizes.map(one => one.bus_bytes_per_s));
  const x = (size: number) =>
    (WIDTH * Math.log(size / least)) / Math.log(most / least);
  const y = (rate: number) => HEIGHT * (1 - rate / top);
  const label = trans.__(
    'Bus bandwidth of messages from %1 to %2, at most %3',
    sizeText(least),
    sizeText(all[all.length - 1]),
    formats.bitRate(Math.max(...sizes.map(one => one.bus_bytes_per_s)))
  );
  return (
    <figure className="mnt-bench-chart">
      <figcaption className="m s">
        {trans.__('bus bandwidth by message size')}
      </figcaption>
      <div className="m s">{formats.bitRate(top / ROOM)}</div>
      <svg
        role="img"
        aria-label={label}
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
      >
        <path className="mnt-bench-axis" d={`M0 ${HEIGHT}H${WIDTH}`} />
        <path className="mnt-bench-axis" d={`M0 ${y(top / ROOM)}H${WIDTH}`} />
        {typeof line === 'number' && (
          <path className="mnt-bench-line" d={`M0 ${y(line)}H${WIDTH}`} />
        )}
        {OPERATIONS.map(operation => (
          <polyline
            key={operation}
            data-operation={operation}
            points={sizesOf(report, operation)
              .map(one => `${x(one.size_bytes)},${y(one.bus_bytes_per_s)}`)
              .join(' ')}
          />
        ))}
      </svg>
      <div className="row m s">
        <span>{sizeText(least)}</span>
        <span className="sp" />
        <span>{sizeText(all[all.length - 1])}</span>
      </div>
    </figure>
  );
}

/** The stroke of a line, for its row of a table. */
export function Stroke(props: { operation?: string }): JSX.Element {
  return (
    <svg className="mnt-bench-key" viewBox="0 0 24 8" aria-hidden="true">
      {props.operation ? (
        <polyline data-operation={props.operation} points="0,4 24,4" />
      ) : (
        <path className="mnt-bench-line" d="M0 4H24" />
      )}
    </svg>
  );
}
