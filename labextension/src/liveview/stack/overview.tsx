/** Overview: the throughput of the whole job, and where the shown range is in it. */

import * as React from 'react';

import { trans } from '../../trans';
import type { Axis } from '../axis/axis';
import {
  type IZoom,
  moved,
  nearest,
  ordered,
  pixelOf,
  type Range,
  widened
} from '../axis/range';
import type { ISampleWords } from '../axis/ticks';
import type { IChart, ILine } from '../charts/chart';
import type { IArea } from './overlay';

const HEIGHT = 36;

/** Half the width of a handle, which is easy to hit. */
const GRIP = 12;

type Grip = 'from' | 'to' | 'all';

export interface IOverviewProps {
  axis: Axis;
  shown: IChart[];
  whole: Range;
  span: Range;
  area: IArea;
  words: ISampleWords;
  zoom: (zoom: IZoom | null) => void;
}

export function Overview(props: IOverviewProps): JSX.Element {
  const { shown, whole, span, area } = props;
  const place = (x: number) => pixelOf(x, whole, area.left, area.width);
  const events = useGrips(props);
  const line = overviewLine(shown);
  return (
    <div className="mnt-overview" data-lm-suppress-shortcuts="true">
      <div className="mnt-chart-title">
        <span className="b">{trans.__('Overview')}</span>{' '}
        <span className="m s">
          {trans.__('%1 of all steps; drag the range or its edges', line.label)}
        </span>
      </div>
      <svg height={HEIGHT} style={{ width: area.left + area.width + GRIP }}>
        <path className="mnt-overview-line" d={outline(line, area, whole)} />
        <rect
          className="mnt-selected mnt-window"
          x={place(span[0])}
          width={Math.max(1, place(span[1]) - place(span[0]))}
          height={HEIGHT}
          {...events('all')}
        />
        <Handle
          {...props}
          grip="from"
          label={trans.__('Start of the shown range')}
          events={events('from')}
        />
        <Handle
          {...props}
          grip="to"
          label={trans.__('End of the shown range')}
          events={events('to')}
        />
      </svg>
    </div>
  );
}

/** The range after one of its ends, or all of it, was moved. */
export function reached(
  grip: Grip,
  [from, to]: Range,
  distance: number,
  xs: Float64Array,
  whole: Range
): Range {
  if (grip === 'all') {
    return moved([from, to], distance, whole);
  }
  const ends =
    grip === 'from'
      ? ordered(from + distance, to)
      : ordered(from, to + distance);
  return widened(ends, xs, whole);
}

/** Events with which the mouse moves the range or one of its ends. */
function useGrips({ axis, whole, span, area, zoom }: IOverviewProps) {
  const held = React.useRef<{ at: number; span: Range } | null>(null);
  const letGo = () => {
    held.current = null;
  };
  return (grip: Grip) => ({
    onPointerDown: (event: React.PointerEvent<SVGElement>) => {
      event.currentTarget.setPointerCapture?.(event.pointerId);
      held.current = { at: event.clientX, span };
    },
    onPointerMove: (event: React.PointerEvent<SVGElement>) => {
      if (held.current) {
        const unit = (whole[1] - whole[0]) / area.width;
        const distance = (event.clientX - held.current.at) * unit;
        const from = held.current.span;
        const range = reached(grip, from, distance, axis.xs, whole);
        zoom({ range, follows: false });
      }
    },
    onPointerUp: letGo,
    onPointerCancel: letGo
  });
}

/** An end of the range as a slider. */
function Handle(
  props: IOverviewProps & {
    grip: 'from' | 'to';
    label: string;
    events: React.SVGAttributes<SVGGElement>;
  }
): JSX.Element {
  const { axis, whole, span, area, words, zoom, grip, label, events } = props;
  const end = grip === 'from' ? span[0] : span[1];
  const x = pixelOf(end, whole, area.left, area.width);
  const row = nearest(axis.xs, end);
  const onKeyDown = (event: React.KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1 };
    const next = axis.xs[row + (steps[event.key] ?? NaN)];
    if (next !== undefined) {
      const range = reached(grip, span, next - end, axis.xs, whole);
      zoom({ range, follows: false });
      event.preventDefault();
    }
  };
  return (
    <g
      className="mnt-handle"
      role="slider"
      tabIndex={0}
      aria-label={label}
      aria-valuemin={whole[0]}
      aria-valuemax={whole[1]}
      aria-valuenow={end}
      aria-valuetext={row < 0 ? '' : words.sample(axis.sample(row))}
      onKeyDown={onKeyDown}
      {...events}
    >
      <rect
        className="mnt-grip"
        x={x - GRIP}
        width={2 * GRIP}
        height={HEIGHT}
      />
      <rect x={x - 4} y={6} width={8} height={HEIGHT - 12} rx={2} />
    </g>
  );
}

/** The job's throughput; else the first line there is. */
function overviewLine(shown: IChart[]): Pick<ILine, 'x' | 'y' | 'label'> {
  const all = shown.flatMap(({ title, lines }) =>
    lines.map(line => ({ ...line, label: `${title} ${line.label}` }))
  );
  const none = { x: new Float64Array(), y: new Float64Array(), label: '' };
  return all.find(line => line.key === 'job') ?? all[0] ?? none;
}

/** Lowest and highest value of every pixel, joined. */
export function outline(
  { x, y }: Pick<ILine, 'x' | 'y'>,
  area: IArea,
  whole: Range
): string {
  const finite = y.filter(Number.isFinite);
  if (!finite.length) {
    return '';
  }
  const [low, high] = finite.reduce(
    ([a, b], value) => [Math.min(a, value), Math.max(b, value)],
    [Infinity, -Infinity]
  );
  const scale = (HEIGHT - 8) / (high - low || 1);
  const columns = new Map<number, [low: number, high: number]>();
  x.forEach((at, row) => {
    const px = Math.round(pixelOf(at, whole, area.left, area.width));
    const height = HEIGHT - 4 - (y[row] - low) * scale;
    if (Number.isFinite(height)) {
      const [a, b] = columns.get(px) ?? [height, height];
      columns.set(px, [Math.min(a, height), Math.max(b, height)]);
    }
  });
  const points = [...columns].flatMap(([px, [a, b]]) =>
    a === b
      ? [`${px} ${a.toFixed(1)}`]
      : [`${px} ${a.toFixed(1)}`, `${px} ${b.toFixed(1)}`]
  );
  return `M${points.join('L')}`;
}
