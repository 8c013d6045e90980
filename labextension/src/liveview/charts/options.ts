/** uPlot's options: scales, axes, lines and the areas between them. */

import uPlot from 'uplot';

import type { AxisKind } from '../axis/axis';
import type { Range } from '../axis/range';
import { atLeastOne, axisTicks } from '../axis/ticks';
import type { IChart, ILine } from './chart';
import {
  drawBreaks,
  drawEvents,
  drawGaps,
  drawLevels,
  drawOutside
} from './marks';
import { logTicks, type Scale, valueRange } from './scale';
import { hatch, type ITheme } from './theme';

export interface IPlotProps {
  chart: IChart;
  theme: ITheme;
  scale: Scale;
  axis: AxisKind;
  /** Both ends of the horizontal axis that all charts share. */
  span: Range;
  showsAxis: boolean;
}

/** Pixels to the left of every chart, for the texts of its value axis. */
export const LEFT = 52;

/** Canvas to the right of the chart, for half of the last time label, its date included. */
export const OVERHANG = 64;

/** Options of a plot; `props` returns the latest props. */
export function options(
  props: () => IPlotProps,
  size: { width: number; height: number },
  scaled: (axis: string) => void
): uPlot.Options {
  const { chart, theme, showsAxis } = props();
  return {
    ...size,
    padding: [6, OVERHANG, showsAxis ? 0 : 4, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: scales(props),
    axes: [sharedAxis(props), valueAxis(props)],
    series: [{}, ...chart.lines.map(series)],
    bands: bands(chart, theme),
    hooks: {
      draw: [
        plot => {
          const { y } = plot.scales;
          const { top, height } = plot.bbox;
          scaled([y.min, y.max, top, height].join(' '));
          drawOutside(plot, props().chart);
          drawBreaks(plot, props().chart, theme);
          drawEvents(plot, props().chart, theme);
        }
      ],
      drawClear: [
        plot => {
          drawGaps(plot, props().chart, theme);
          drawLevels(plot, props().chart, theme);
        }
      ]
    }
  };
}

function isLog({ chart, scale }: IPlotProps): boolean {
  return scale === 'log' && !chart.isMirrored;
}

function scales(props: () => IPlotProps): uPlot.Scales {
  return {
    x: {
      time: props().axis === 'time',
      range: () => atLeastOne(props().span)
    },
    y: {
      distr: isLog(props()) ? 3 : 1,
      // Values without a logarithm lie on the frame, with a mark.
      clamp: (_, __, low) => low,
      range: (_, low, high) =>
        valueRange(props().chart, props().scale, low, high)
    }
  };
}

function sharedAxis(props: () => IPlotProps): uPlot.Axis {
  const { axis, theme, showsAxis, span } = props();
  return {
    show: showsAxis,
    size: 20,
    ...look(theme),
    gap: 4,
    ...axisTicks(axis, span)
  };
}

function valueAxis(props: () => IPlotProps): uPlot.Axis {
  return {
    size: LEFT,
    ...look(props().theme),
    gap: 6,
    space: 24,
    ...(isLog(props())
      ? {
          splits: (_: uPlot, __: number, low: number, high: number) =>
            logTicks(low, high),
          filter: (_: uPlot, splits: number[]) => splits
        }
      : {}),
    values: (_, splits) => {
      const step = splits.length > 1 ? splits[1] - splits[0] : 1;
      // Ticks of a logarithmic axis are about their own size apart.
      return splits.map(split =>
        props().chart.tick(split, isLog(props()) ? split : step)
      );
    }
  };
}

function look(theme: ITheme): Partial<uPlot.Axis> {
  return {
    stroke: theme.secondary,
    font: `11px ${theme.font}`,
    grid: { stroke: theme.grid, width: 1 },
    ticks: { show: false }
  };
}

function series(line: ILine): uPlot.Series {
  return {
    label: line.label,
    stroke: line.color,
    width: line.width,
    alpha: line.opacity ?? 1,
    dash: line.dash.length ? line.dash : undefined,
    spanGaps: !line.keepsGaps,
    fill: line.isFilled ? translucent(line.color) : undefined,
    fillTo: line.isFilled ? () => 0 : undefined,
    points: line.isMarked
      ? { show: true, size: 5, fill: line.color, space: 60 }
      : { show: line.x.length === 1, size: 5, fill: line.color }
  };
}

function bands({ lines, isMirrored }: IChart, theme: ITheme): uPlot.Band[] {
  const index = (key: string) => 1 + lines.findIndex(line => line.key === key);
  return lines
    .filter(line => line.fillTo !== undefined)
    .map(line => ({
      series: [index(line.fillTo!), index(line.key)],
      fill:
        line.fillKind === 'hatch'
          ? (hatch(theme.other) as unknown as string)
          : theme.band,
      dir: isMirrored && line.key.endsWith('1') ? 1 : -1
    }));
}

function translucent(color: string): string {
  return /^#[0-9a-f]{6}$/i.test(color) ? `${color}59` : color;
}
