/** Labels at the right ends of the lines. */

import * as React from 'react';
import type uPlot from 'uplot';

import { ABSENT } from '../../formats';
import type { IReading } from './align';
import type { IChart, ILine } from './chart';
import { spread } from './spread';

const LABEL_GAP = 14;

export interface ILabelsProps {
  chart: IChart;
  lines: ILine[];
  readings: IReading[];
  plot: uPlot | null;
  left: number;
  width: number;
  height: number;
}

interface ILabel {
  /** The value that it stands next to. */
  at: number;
  name: string;
  line?: ILine;
  reading?: IReading;
  /** Of a level. */
  value?: string;
}

/** For every line a leader, its dash, its name, and the recent value or the one pointed at. */
export function Labels(props: ILabelsProps): JSX.Element {
  const { chart, left, width, height } = props;
  const labels: ILabel[] = [
    ...props.lines
      .map((line, i) => ({ line, reading: props.readings[i] }))
      .filter(({ reading }) => reading.broken || !Number.isNaN(reading.height))
      .map(one => ({ ...one, at: one.reading.height, name: one.line.label })),
    ...(chart.levels ?? []).map(({ at, label, value }) => ({
      at,
      name: label,
      value
    }))
  ];
  const wanted = labels.map(({ at }) =>
    heightOf(at, chart, props.plot, height)
  );
  const placed = spread(wanted, LABEL_GAP, 6, chart.height - 2);
  return (
    <svg
      className="mnt-chart-labels"
      style={{ left, width, height }}
      aria-hidden="true"
    >
      {labels.map(({ name, line, reading, value }, i) => (
        <g key={line?.key ?? i}>
          <path
            d={`M0 ${wanted[i]} L6 ${placed[i]} L${line ? 10 : 26} ${placed[i]}`}
            className="mnt-leader"
          />
          {line && <Dash line={line} y={placed[i]} />}
          <text x={30} y={placed[i] + 4} className={line ? '' : 'm'}>
            {name}{' '}
            {reading && (
              <tspan className={reading.broken ? 'mnt-alarm' : 'b'}>
                {written(chart, reading)}
              </tspan>
            )}
            {value && <tspan className="b">{value}</tspan>}
          </text>
        </g>
      ))}
    </svg>
  );
}

function Dash({ line, y }: { line: ILine; y: number }): JSX.Element {
  return (
    <>
      <path
        d={`M10 ${y} L26 ${y}`}
        stroke={line.color}
        strokeWidth={line.width}
        strokeDasharray={line.dash.map(part => part / 1.6).join(' ')}
      />
      {line.isMarked && <circle cx={18} cy={y} r={2.5} fill={line.color} />}
    </>
  );
}

/** Position of a value in pixels from the top; the middle until uPlot has scaled its axis. */
export function heightOf(
  value: number,
  chart: IChart,
  plot: uPlot | null,
  height: number
): number {
  if (!plot || plot.scales.y?.min === undefined) {
    return height / 2;
  }
  const at = plot.bbox.top / devicePixelRatio + plot.valToPos(value, 'y');
  return Number.isFinite(at)
    ? Math.min(Math.max(at, 0), chart.height)
    : height / 2;
}

export function written(chart: IChart, reading: IReading): string {
  const { value, broken } = reading;
  return broken ?? (Number.isNaN(value) ? ABSENT : chart.format(value));
}
