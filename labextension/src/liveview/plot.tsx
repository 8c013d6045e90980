/** One chart: uPlot draws axes and lines, we put a label at the end of each. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import uPlot from 'uplot';

import { clock } from '../formats';
import type { IChart, ILine } from './chartdata';
import { spread } from './spread';
import { hatch, type ITheme } from './theme';

export type Scale = 'auto' | 'zero' | 'log';

export interface IPlotProps {
  chart: IChart;
  theme: ITheme;
  scale: Scale;
  /** Seconds shown, up to the end; `null` = all. */
  range: number | null;
  /** Both ends of the time axis that all charts share. */
  span: [number, number];
  width: number;
  /** Charts with one key move one pointer. */
  syncKey: string;
  showsTime: boolean;
  trans: TranslationBundle;
}

const LEFT = 52;
const LABEL_GAP = 14;

/** Below, the clock on the axis needs seconds. */
const SHORT_RUN_S = 600;

/** Whole seconds, minutes, hours, days: a clock has no halves of them. */
const INCREMENTS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600,
  43200, 86400, 172800, 604800
];

export function Plot(props: IPlotProps): JSX.Element {
  const { chart, theme, width, showsTime } = props;
  const host = React.useRef<HTMLDivElement>(null);
  const plot = React.useRef<uPlot | null>(null);
  const latest = React.useRef(props);
  latest.current = props;
  const [pointed, setPointed] = React.useState<number | null>(null);
  // uPlot scales its axis when it draws, after this: labels then have their places.
  const [, setScaled] = React.useState('');
  const right = width < 720 ? 132 : 152;
  const height = chart.height + (showsTime ? 24 : 4);
  // A new plot only where lines come, go or change their looks: else the data is replaced.
  const shape = JSON.stringify([
    chart.lines.map(line => [line.key, line.color, line.dash, line.fillTo]),
    props.scale,
    showsTime,
    theme,
    chart.isMirrored,
    props.span[1] - props.span[0] < SHORT_RUN_S
  ]);
  const data = React.useMemo(() => align(chart.lines), [chart]);

  React.useLayoutEffect(() => {
    if (!host.current || chart.note) {
      return;
    }
    const made = new uPlot(
      options(
        () => latest.current,
        { width: width - right, height },
        setPointed,
        setScaled
      ),
      data,
      host.current
    );
    plot.current = made;
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [shape, chart.note === undefined]);

  React.useLayoutEffect(() => {
    const made = plot.current;
    if (made) {
      if (made.width !== width - right || made.height !== height) {
        made.setSize({ width: width - right, height });
      }
      made.setData(data, true);
    }
  }, [props]);

  const labeled = chart.lines.filter(line => !line.isQuiet);
  const values = labeled.map(line => valueAt(line, data, pointed, chart.lines));
  const words = labeled.map(
    (line, i) => `${line.label} ${text(chart, values[i])}`
  );
  return (
    <div
      className="mnt-chart"
      role="img"
      aria-label={`${chart.title}: ${chart.note ?? words.join(', ')}`}
    >
      <div className="mnt-chart-title">
        <span className="b">{chart.title}</span>{' '}
        <span className="m s">{chart.subtitle}</span>
      </div>
      {chart.note ? (
        <p className="m s mnt-chart-note">{chart.note}</p>
      ) : (
        <div className="mnt-chart-body" style={{ height }}>
          <div ref={host} />
          <Labels
            chart={chart}
            lines={labeled}
            values={values}
            plot={plot.current}
            left={width - right}
            width={right}
            height={height}
          />
        </div>
      )}
    </div>
  );
}

function text(chart: IChart, value: number): string {
  return Number.isNaN(value) ? '–' : chart.format(value);
}

/** At the right end of every line: a leader, its dash, its name, its last or pointed value. */
function Labels(props: {
  chart: IChart;
  lines: ILine[];
  values: number[];
  plot: uPlot | null;
  left: number;
  width: number;
  height: number;
}): JSX.Element {
  const { chart, plot, left, width, height } = props;
  const known = props.lines
    .map((line, i) => ({ line, value: props.values[i] }))
    .filter(({ value }) => !Number.isNaN(value));
  const levels = chart.levels ?? [];
  const scale = plot?.scales.y;
  const isReady = plot && scale && scale.min !== undefined;
  const place = (value: number) => {
    if (!isReady) {
      return height / 2;
    }
    const at = plot.bbox.top / devicePixelRatio + plot.valToPos(value, 'y');
    return Number.isFinite(at)
      ? Math.min(Math.max(at, 0), chart.height)
      : height / 2;
  };
  const wanted = [
    ...known.map(({ value }) => place(value)),
    ...levels.map(level => place(level.at))
  ];
  const placed = spread(wanted, LABEL_GAP, 6, chart.height - 2);
  return (
    <svg
      className="mnt-chart-labels"
      style={{ left, width, height }}
      aria-hidden="true"
    >
      {known.map(({ line, value }, i) => (
        <g key={line.key}>
          <path
            d={`M0 ${wanted[i]} L6 ${placed[i]} L10 ${placed[i]}`}
            className="mnt-leader"
          />
          <path
            d={`M10 ${placed[i]} L26 ${placed[i]}`}
            stroke={line.color}
            strokeWidth={line.width}
            strokeDasharray={line.dash.map(part => part / 1.6).join(' ')}
          />
          {line.isMarked && (
            <circle cx={18} cy={placed[i]} r={2.5} fill={line.color} />
          )}
          <text x={30} y={placed[i] + 4}>
            {line.label} <tspan className="b">{text(chart, value)}</tspan>
          </text>
        </g>
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

/** The value under the pointer, or the last one. */
function valueAt(
  line: ILine,
  data: uPlot.AlignedData,
  pointed: number | null,
  lines: ILine[]
): number {
  const values = data[1 + lines.indexOf(line)] as ReadonlyArray<
    number | null | undefined
  >;
  const from = pointed ?? values.length - 1;
  for (let i = Math.min(from, values.length - 1); i >= 0; i--) {
    const value = values[i];
    if (typeof value === 'number' && !Number.isNaN(value)) {
      return value;
    }
  }
  return NaN;
}

/** One time axis for lines whose ranks each have a clock of their own. */
export function align(lines: ReadonlyArray<ILine>): uPlot.AlignedData {
  if (lines.length === 0) {
    return [[]];
  }
  const plain = (values: Float64Array) =>
    Array.from(values, value => (Number.isNaN(value) ? null : value));
  const first = lines[0].x;
  if (lines.every(line => isSame(line.x, first))) {
    return [Array.from(first), ...lines.map(line => plain(line.y))];
  }
  return uPlot.join(
    lines.map(line => [Array.from(line.x), plain(line.y)] as uPlot.AlignedData)
  );
}

function isSame(a: Float64Array, b: Float64Array): boolean {
  if (a.length !== b.length) {
    return false;
  }
  // Rows of one table, or of several that were filled together.
  return (
    a.length === 0 ||
    (a[0] === b[0] &&
      a[a.length - 1] === b[a.length - 1] &&
      a[a.length >> 1] === b[a.length >> 1])
  );
}

function options(
  props: () => IPlotProps,
  size: { width: number; height: number },
  point: (index: number | null) => void,
  scaled: (axis: string) => void
): uPlot.Options {
  const { chart, theme, scale, syncKey, showsTime } = props();
  const index = (key: string) =>
    1 + chart.lines.findIndex(line => line.key === key);
  const font = `11px ${theme.font}`;
  const [first, last] = props().span;
  const showsSeconds = last - first < SHORT_RUN_S;
  return {
    ...size,
    padding: [6, 0, showsTime ? 0 : 4, 0],
    legend: { show: false },
    cursor: {
      sync: { key: syncKey, setSeries: false },
      drag: { x: false, y: false },
      points: { show: false },
      y: false
    },
    scales: {
      x: {
        time: true,
        range: () => {
          const [begin, end] = props().span;
          return [begin, Math.max(end, begin + 1)];
        }
      },
      y: {
        distr: scale === 'log' && !chart.isMirrored ? 3 : 1,
        range: (_, low, high) => valueRange(props(), low, high)
      }
    },
    axes: [
      {
        show: showsTime,
        size: 20,
        space: showsSeconds ? 84 : 64,
        incrs: INCREMENTS,
        stroke: theme.secondary,
        font,
        grid: { stroke: theme.grid, width: 1 },
        ticks: { show: false },
        gap: 4,
        values: (_, splits) => {
          return splits.map(split => clock(split, showsSeconds));
        }
      },
      {
        size: LEFT,
        stroke: theme.secondary,
        font,
        grid: { stroke: theme.grid, width: 1 },
        ticks: { show: false },
        gap: 6,
        space: 24,
        values: (_, splits) => {
          const step = splits.length > 1 ? splits[1] - splits[0] : 1;
          return splits.map(split =>
            split === null ? '' : props().chart.tick(split, step)
          );
        }
      }
    ],
    series: [
      {},
      ...chart.lines.map((line): uPlot.Series => ({
        label: line.label,
        stroke: line.color,
        width: line.width,
        dash: line.dash.length ? line.dash : undefined,
        spanGaps: true,
        fill: line.isFilled ? translucent(line.color) : undefined,
        fillTo: line.isFilled ? () => 0 : undefined,
        points: line.isMarked
          ? { show: true, size: 5, fill: line.color, space: 60 }
          : { show: line.x.length === 1, size: 5, fill: line.color }
      }))
    ],
    bands: chart.lines
      .filter(line => line.fillTo !== undefined)
      .map(line => ({
        series: [index(line.fillTo!), index(line.key)] as [number, number],
        fill:
          line.fillKind === 'hatch'
            ? (hatch(theme.other) as unknown as string)
            : theme.band,
        dir: chart.isMirrored && line.key.endsWith('1') ? 1 : -1
      })),
    hooks: {
      setCursor: [
        plot => {
          point(plot.cursor.left! >= 0 ? (plot.cursor.idx ?? null) : null);
        }
      ],
      draw: [
        ({ scales: { y }, bbox }) => {
          scaled([y.min, y.max, bbox.top, bbox.height].join(' '));
        }
      ],
      drawClear: [
        plot => {
          const { levels, isMirrored } = props().chart;
          const at = [...(levels ?? []).map(level => level.at)];
          const { ctx, bbox } = plot;
          ctx.save();
          ctx.strokeStyle = theme.axis;
          ctx.lineWidth = devicePixelRatio;
          for (const value of isMirrored ? [0, ...at] : at) {
            const y = plot.valToPos(value, 'y', true);
            ctx.beginPath();
            ctx.moveTo(bbox.left, y);
            ctx.lineTo(bbox.left + bbox.width, y);
            ctx.stroke();
          }
          ctx.restore();
        }
      ]
    }
  };
}

function translucent(color: string): string {
  return /^#[0-9a-f]{6}$/i.test(color) ? `${color}59` : color;
}

/** The ends of the value axis. */
export function valueRange(
  { chart, scale }: Pick<IPlotProps, 'chart' | 'scale'>,
  low: number | null,
  high: number | null
): [number, number] {
  if (chart.limit !== undefined) {
    return [-chart.limit, chart.limit];
  }
  if (low === null || high === null) {
    return [0, 1];
  }
  if (scale === 'log') {
    return [low > 0 ? low / 1.1 : 1e-6, high > 0 ? 1.1 * high : 1];
  }
  const rest = Math.max(high - low, Math.abs(high) * 0.02, 1e-9);
  if (scale === 'zero') {
    return [Math.min(0, low), high + 0.1 * rest];
  }
  const floor = low >= 0 ? 0 : -Infinity;
  return [Math.max(floor, low - 0.15 * rest), high + 0.15 * rest];
}
