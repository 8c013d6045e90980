/** Value axis: its range, and the ticks of a logarithmic one. */

import type { IChart } from './chart';

export type Scale = 'auto' | 'zero' | 'log';

/** Beyond this, only powers of ten are shown. */
const MOST_LOG_TICKS = 5;

/** Ticks within a decade. */
const LEADING = [1, 2, 5];

/** Range if no value is positive. */
const EMPTY_DECADE: [number, number] = [0.1, 1];

/** Range of the value axis: includes every value that has a place on it. */
export function valueRange(
  chart: Pick<IChart, 'limit' | 'range' | 'levels'>,
  scale: Scale,
  low: number | null,
  high: number | null
): [number, number] {
  if (chart.limit !== undefined) {
    return [-chart.limit, chart.limit];
  }
  if (chart.range) {
    return chart.range;
  }
  if (low === null || high === null) {
    return scale === 'log' ? EMPTY_DECADE : [0, 1];
  }
  for (const { at } of chart.levels ?? []) {
    [low, high] = [Math.min(low, at), Math.max(high, at)];
  }
  if (scale === 'log') {
    return logRange(low, high);
  }
  const rest = Math.max(high - low, Math.abs(high) * 0.02, 1e-9);
  if (scale === 'zero') {
    return [Math.min(0, low), high + 0.1 * rest];
  }
  const floor = low >= 0 ? 0 : -Infinity;
  return [Math.max(floor, low - 0.15 * rest), high + 0.15 * rest];
}

/** From one 1, 2 or 5 × 10ⁿ to another, with at least two ticks. */
function logRange(low: number, high: number): [number, number] {
  if (!(high > 0)) {
    return EMPTY_DECADE;
  }
  const top = logTick(high, true);
  return [low > 0 ? logTick(low, false) : top / 1000, top];
}

/** The next 1, 2 or 5 × 10ⁿ beyond a value. */
function logTick(value: number, isAbove: boolean): number {
  const exponent = Math.floor(Math.log10(value));
  const near = [exponent - 1, exponent, exponent + 1].flatMap(decade);
  return isAbove
    ? near.find(tick => tick > value)!
    : near.reverse().find(tick => tick < value)!;
}

function decade(exponent: number): number[] {
  // Parsed, because 2 * 10 ** -1 may have rounding errors, which would show in the label.
  return LEADING.map(leading => Number(`${leading}e${exponent}`));
}

/** 1, 2 and 5 × 10ⁿ; only powers of ten if those are too many. */
export function logTicks(low: number, high: number): number[] {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const ticks: number[] = [];
  for (let exponent = first; exponent <= last; exponent++) {
    ticks.push(...decade(exponent));
  }
  const shown = ticks.filter(tick => tick >= low && tick <= high);
  return shown.length <= MOST_LOG_TICKS
    ? shown
    : shown.filter(tick => Number.isInteger(round(Math.log10(tick))));
}

/** log10(1000) is 2.9999999999999996. */
function round(value: number): number {
  return Math.round(value * 1e9) / 1e9;
}
