/** Plot of one chart: uPlot draws axes and lines; we add the labels and the pointer. */

import * as React from 'react';
import uPlot from 'uplot';

import { Term, type TermName } from '../../terms';
import { Overlay } from '../stack/overlay';
import { showsSeconds } from '../axis/ticks';
import type { Range } from '../axis/range';
import { align, type IReading, readingAt } from './align';
import type { IChart, ILine } from './chart';
import { heightOf, Labels, written } from './labels';
import { type IPlotProps, LEFT, options, OVERHANG } from './options';

/** Below this many pixels the labels have less room. */
const NARROW = 720;

/** Height below a chart, with and without a horizontal axis. */
const [WITH_AXIS, NO_AXIS] = [24, 4];

/** Pixels to the right of a chart, for its labels. */
export function labelRoom(width: number): number {
  return width < NARROW ? 132 : 152;
}

/** Left edge and width of what every chart plots, in a view of `width` pixels. */
export function plotArea(width: number): { left: number; width: number } {
  return { left: LEFT, width: Math.max(1, width - labelRoom(width) - LEFT) };
}

export function Plot(
  props: IPlotProps & {
    width: number;
    /** The sample pointed at, on the horizontal axis. */
    pointed: number | null;
    /** What the labels tell if nothing is pointed at; `null` = the newest. */
    readAt: number | null;
    selection: Range | null;
  }
): JSX.Element {
  const { chart, width, showsAxis, pointed, readAt, selection, span } = props;
  const [room, area] = [labelRoom(width), plotArea(width)];
  const size = {
    width: width - room + OVERHANG,
    height: chart.height + (showsAxis ? WITH_AXIS : NO_AXIS)
  };
  const data = React.useMemo(() => align(chart.lines), [chart]);
  const { host, plot } = usePlot(props, size, data);
  const labeled = chart.lines.filter(line => !line.isQuiet);
  const readings = labeled.map(line =>
    readingAt(chart, line, data, pointed ?? readAt)
  );
  return (
    <div
      className="mnt-chart"
      role="img"
      aria-label={said(chart, labeled, readings)}
    >
      <Title chart={chart} />
      {chart.note ? (
        <p className="m s mnt-chart-note">{chart.note}</p>
      ) : (
        <div className="mnt-chart-body" style={{ height: size.height }}>
          <div ref={host} />
          <Overlay
            {...{ area, span, pointed, selection }}
            height={chart.height}
            dots={labeled.map((line, i) => ({
              key: line.key,
              color: line.color,
              x: readings[i].at,
              y: heightOf(readings[i].height, chart, plot, size.height)
            }))}
          />
          <Labels
            chart={chart}
            lines={labeled}
            readings={readings}
            plot={plot}
            left={width - room}
            width={room}
            height={size.height}
          />
        </div>
      )}
    </div>
  );
}

/** The chart in words: its alarm, and the value of each line. */
function said(chart: IChart, lines: ILine[], readings: IReading[]): string {
  const words = lines.map(
    (line, i) => `${line.label} ${written(chart, readings[i])}`
  );
  const all = [...(chart.alarm ? [chart.alarm] : []), ...words];
  return `${chart.title}: ${chart.note ?? all.join(', ')}`;
}

const TERMS: Partial<Record<string, TermName>> = {
  throughput: 'throughput',
  mfu: 'MFU',
  links: 'link utilization',
  compute: 'computing',
  loss: 'loss'
};

function Title({ chart }: { chart: IChart }): JSX.Element {
  const term = TERMS[chart.key];
  return (
    <div className="mnt-chart-title">
      <span className="b">
        {term ? <Term of={term}>{chart.title}</Term> : chart.title}
      </span>{' '}
      <span className="m s">{chart.subtitle}</span>
      {chart.alarm && <span className="mnt-alarm s"> {chart.alarm}</span>}
    </div>
  );
}

/** The plot in `host`: recreated when lines or styles change, else updated. */
function usePlot(
  props: IPlotProps,
  size: { width: number; height: number },
  data: uPlot.AlignedData
) {
  const { axis, chart, scale, showsAxis, span, theme } = props;
  const host = React.useRef<HTMLDivElement>(null);
  const plot = React.useRef<uPlot | null>(null);
  const latest = React.useRef(props);
  latest.current = props;
  // uPlot scales its axis later, when it draws; labels are placed then.
  const [, setScaled] = React.useState('');
  const shape = JSON.stringify([
    chart.lines.map(line => [line.key, line.color, line.dash, line.fillTo]),
    [scale, showsAxis, theme, chart.isMirrored, axis],
    axis === 'time' && showsSeconds(span)
  ]);

  React.useLayoutEffect(() => {
    if (!host.current || chart.note) {
      return;
    }
    const made = new uPlot(
      options(() => latest.current, size, setScaled),
      data,
      host.current
    );
    plot.current = made;
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [shape, chart.note === undefined]);

  // Not when the pointer moves: that would draw all lines again.
  React.useLayoutEffect(() => {
    const made = plot.current;
    if (made) {
      if (made.width !== size.width || made.height !== size.height) {
        made.setSize(size);
      }
      made.setData(data, true);
    }
  }, [chart, data, span[0], span[1], size.width, size.height, shape]);
  return { host, plot: plot.current };
}
