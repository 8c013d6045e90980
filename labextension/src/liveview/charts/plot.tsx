/** Plot of one chart: uPlot draws axes and lines; we add the labels. */

import * as React from 'react';
import uPlot from 'uplot';

import { align, readingAt } from './align';
import { Labels, written } from './labels';
import { type IPlotProps, options, OVERHANG, showsSeconds } from './options';

/** Below this many pixels the labels have less room. */
const NARROW = 720;

/** Height below a chart, with and without a time axis. */
const [TIME_AXIS, NO_AXIS] = [24, 4];

export function Plot(props: IPlotProps & { width: number }): JSX.Element {
  const { chart, width, showsTime } = props;
  const room = width < NARROW ? 132 : 152;
  const size = {
    width: width - room + OVERHANG,
    height: chart.height + (showsTime ? TIME_AXIS : NO_AXIS)
  };
  const data = React.useMemo(() => align(chart.lines), [chart]);
  const { host, plot, pointed } = usePlot(props, size, data);
  const labeled = chart.lines.filter(line => !line.isQuiet);
  const readings = labeled.map(line => readingAt(chart, line, data, pointed));
  const words = labeled.map(
    (line, i) => `${line.label} ${written(chart, readings[i])}`
  );
  const said = [...(chart.alarm ? [chart.alarm] : []), ...words];
  return (
    <div
      className="mnt-chart"
      role="img"
      aria-label={`${chart.title}: ${chart.note ?? said.join(', ')}`}
    >
      <div className="mnt-chart-title">
        <span className="b">{chart.title}</span>{' '}
        <span className="m s">{chart.subtitle}</span>
        {chart.alarm && <span className="mnt-alarm s"> {chart.alarm}</span>}
      </div>
      {chart.note ? (
        <p className="m s mnt-chart-note">{chart.note}</p>
      ) : (
        <div className="mnt-chart-body" style={{ height: size.height }}>
          <div ref={host} />
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

/** The plot in `host`: recreated when lines or styles change, else updated. */
function usePlot(
  props: IPlotProps,
  size: { width: number; height: number },
  data: uPlot.AlignedData
) {
  const { chart, scale, showsTime, span, theme } = props;
  const host = React.useRef<HTMLDivElement>(null);
  const plot = React.useRef<uPlot | null>(null);
  const latest = React.useRef(props);
  latest.current = props;
  const [pointed, setPointed] = React.useState<number | null>(null);
  // uPlot scales its axis later, when it draws; labels are placed then.
  const [, setScaled] = React.useState('');
  const shape = JSON.stringify([
    chart.lines.map(line => [line.key, line.color, line.dash, line.fillTo]),
    [scale, showsTime, theme, chart.isMirrored, showsSeconds(span)]
  ]);

  React.useLayoutEffect(() => {
    if (!host.current || chart.note) {
      return;
    }
    const made = new uPlot(
      options(() => latest.current, size, {
        pointed: setPointed,
        scaled: setScaled
      }),
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
      if (made.width !== size.width || made.height !== size.height) {
        made.setSize(size);
      }
      made.setData(data, true);
    }
  }, [props]);
  return { host, plot: plot.current, pointed };
}
