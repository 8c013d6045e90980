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

/** For every line a leader, its dash, its name, and the recent value or the one pointed at. */
export function Labels(props: ILabelsProps): JSX.Element {
  const { chart, left, width, height } = props;
  const known = props.lines
    .map((line, i) => ({ line, reading: props.readings[i] }))
    .filter(({ reading }) => reading.broken || !Number.isNaN(reading.height));
  const levels = chart.levels ?? [];
  const wanted = [
    ...known.map(({ reading }) => heightOf(reading.height, props)),
    ...levels.map(level => heightOf(level.at, props))
  ];
  const placed = spread(wanted, LABEL_GAP, 6, chart.height - 2);
  return (
    <svg
      className="mnt-chart-labels"
      style={{ left, width, height }}
      aria-hidden="true"
    >
      {known.map(({ line, reading }, i) => (
        <LineLabel
          key={line.key}
          line={line}
          text={written(chart, reading)}
          isBroken={reading.broken !== null}
          from={wanted[i]}
          at={placed[i]}
        />
      ))}
      {levels.map((level, i) => {
        const y = placed[known.length + i];
        return (
          <g key={level.at}>
            <path
              d={`M0 ${wanted[known.length + i]} L6 ${y} L26 ${y}`}
              className="mnt-leader"
            />
            <text x={30} y={y + 4} className="m">
              {level.label}
            </text>
          </g>
        );
      })}
    </svg>
  );
}

function LineLabel(props: {
  line: ILine;
  text: string;
  isBroken: boolean;
  from: number;
  at: number;
}): JSX.Element {
  const { line, text, isBroken, from, at } = props;
  return (
    <g>
      <path d={`M0 ${from} L6 ${at} L10 ${at}`} className="mnt-leader" />
      <path
        d={`M10 ${at} L26 ${at}`}
        stroke={line.color}
        strokeWidth={line.width}
        strokeDasharray={line.dash.map(part => part / 1.6).join(' ')}
      />
      {line.isMarked && <circle cx={18} cy={at} r={2.5} fill={line.color} />}
      <text x={30} y={at + 4}>
        {line.label}{' '}
        <tspan className={isBroken ? 'mnt-alarm' : 'b'}>{text}</tspan>
      </text>
    </g>
  );
}

/** Position of a value in pixels from the top; the middle until uPlot has scaled its axis. */
function heightOf(value: number, props: ILabelsProps): number {
  const { chart, plot, height } = props;
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
