/** Chart marks: levels, values outside the scale, values that are not finite, and events. */

import type uPlot from 'uplot';

import type { IChart } from './chart';
import type { ITheme } from './theme';

/** Half the width and the height of a triangle at the frame. */
const MARK = 4;

/** Dash and gap of a level that is not a limit. */
const DASH = [4, 3];

/** Zero of a mirrored chart, capacities, and what was predicted. */
export function drawLevels(plot: uPlot, chart: IChart, theme: ITheme): void {
  const { ctx, bbox } = plot;
  const levels = chart.levels ?? [];
  ctx.save();
  ctx.strokeStyle = theme.axis;
  ctx.lineWidth = devicePixelRatio;
  for (const { at, isDashed } of chart.isMirrored
    ? [{ at: 0, isDashed: false }, ...levels]
    : levels) {
    const y = plot.valToPos(at, 'y', true);
    ctx.setLineDash(isDashed ? DASH.map(part => part * devicePixelRatio) : []);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
  }
  ctx.restore();
}

/** A shade where nothing is known. */
export function drawGaps(plot: uPlot, chart: IChart, theme: ITheme): void {
  const { ctx, bbox } = plot;
  const right = bbox.left + bbox.width;
  ctx.save();
  ctx.fillStyle = theme.grid;
  for (const [from, to] of chart.gaps ?? []) {
    const begin = Math.max(bbox.left, plot.valToPos(from, 'x', true));
    const end = Math.min(right, plot.valToPos(to, 'x', true));
    ctx.fillRect(begin, bbox.top, Math.max(0, end - begin), bbox.height);
  }
  ctx.restore();
}

/** A triangle on the frame for each value above or below the scale. */
export function drawOutside(plot: uPlot, chart: IChart): void {
  const { min, max } = plot.scales.y;
  if (min === undefined || max === undefined || min === null || max === null) {
    return;
  }
  chart.lines.forEach((line, i) => {
    const times = plot.data[0];
    const values = plot.data[1 + i];
    const [from, to] = plot.series[0].idxs ?? [0, times.length - 1];
    for (let row = from; row <= to; row++) {
      const value = values[row];
      if (typeof value === 'number' && (value < min || value > max)) {
        triangle(plot, times[row], value > max, line.color);
      }
    }
  });
}

function triangle(
  plot: uPlot,
  time: number,
  isAbove: boolean,
  color: string
): void {
  const { ctx, bbox } = plot;
  const size = MARK * devicePixelRatio;
  const x = plot.valToPos(time, 'x', true);
  const tip = isAbove ? bbox.top : bbox.top + bbox.height;
  const base = isAbove ? tip + size : tip - size;
  ctx.save();
  ctx.fillStyle = color;
  ctx.beginPath();
  ctx.moveTo(x, tip);
  ctx.lineTo(x - size, base);
  ctx.lineTo(x + size, base);
  ctx.fill();
  ctx.restore();
}

/** A red line where a value is NaN or infinite, labeled if there is room. */
export function drawBreaks(plot: uPlot, chart: IChart, theme: ITheme): void {
  const { ctx, bbox } = plot;
  const { min, max } = plot.scales.x;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = theme.bad;
  ctx.lineWidth = devicePixelRatio;
  ctx.font = `${11 * devicePixelRatio}px ${theme.font}`;
  ctx.textAlign = 'left';
  ctx.textBaseline = 'top';
  let free = -Infinity;
  for (const { time, label } of chart.breaks ?? []) {
    if (time < (min ?? -Infinity) || time > (max ?? Infinity)) {
      continue;
    }
    const x = plot.valToPos(time, 'x', true);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const width = ctx.measureText(label).width + MARK * devicePixelRatio;
    if (x > free && x + width < bbox.left + bbox.width) {
      ctx.fillText(label, x + 2 * devicePixelRatio, bbox.top);
      free = x + width;
    }
  }
  ctx.restore();
}

/** A dotted line where a warning began, its time shaded, and its name where there is room. */
export function drawEvents(plot: uPlot, chart: IChart, theme: ITheme): void {
  const { ctx, bbox } = plot;
  const { min, max } = plot.scales.x;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = theme.bad;
  ctx.lineWidth = devicePixelRatio;
  ctx.font = `${11 * devicePixelRatio}px ${theme.font}`;
  ctx.textAlign = 'left';
  ctx.textBaseline = 'top';
  let free = -Infinity;
  for (const { time_s, end_s, label } of chart.marks ?? []) {
    if (time_s < (min ?? -Infinity) || time_s > (max ?? Infinity)) {
      continue;
    }
    const x = plot.valToPos(time_s, 'x', true);
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (end_s) {
      const end = plot.valToPos(Math.min(end_s, max ?? end_s), 'x', true);
      ctx.globalAlpha = 0.08;
      ctx.fillRect(x, bbox.top, end - x, bbox.height);
      ctx.globalAlpha = 1;
    }
    const width = ctx.measureText(label).width + MARK * devicePixelRatio;
    if (chart.namesMarks && x > free && x + width < bbox.left + bbox.width) {
      ctx.fillText(label, x + 3 * devicePixelRatio, bbox.top);
      free = x + width;
    }
  }
  ctx.restore();
}
