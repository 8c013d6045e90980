import type { IChart } from '../liveview/charts/chart';
import { drawBreaks, drawEvents, drawOutside } from '../liveview/charts/marks';
import { THEME } from './samples';

/** A plot of 100 × 100 pixels whose canvas only remembers. */
function plot(values: (number | null)[]) {
  const drawn: string[] = [];
  const note =
    (name: string) =>
    (...args: unknown[]) =>
      void drawn.push([name, ...args].join(' '));
  const ctx = {
    save: () => undefined,
    restore: () => undefined,
    beginPath: () => undefined,
    moveTo: note('at'),
    lineTo: () => undefined,
    stroke: () => undefined,
    fill: note('filled'),
    setLineDash: () => undefined,
    fillRect: note('shaded'),
    fillText: note('text'),
    measureText: () => ({ width: 20 })
  };
  const made = {
    ctx,
    bbox: { left: 0, top: 0, width: 100, height: 100 },
    scales: { x: { min: 0, max: 10 }, y: { min: 1, max: 10 } },
    data: [values.map((_, i) => i), values],
    series: [{ idxs: [0, values.length - 1] }, {}],
    valToPos: (value: number) => 10 * value
  };
  return { made: made as any, drawn };
}

const CHART = { lines: [{ color: '#1' }] } as unknown as IChart;

beforeAll(() => {
  window.devicePixelRatio = 1;
});

describe('a value outside the scale', () => {
  it('has a mark on the frame where it leaves it', () => {
    const { made, drawn } = plot([0.5, 5, null, 20, 10]);
    drawOutside(made, CHART);
    expect(drawn.filter(one => one.startsWith('at'))).toEqual([
      'at 0 100',
      'at 30 0'
    ]);
  });

  it('there is none where all are inside', () => {
    const { made, drawn } = plot([1, 5, 10]);
    drawOutside(made, CHART);
    expect(drawn).toEqual([]);
  });
});

describe('a value that is not finite', () => {
  it('is a line across the chart, named where there is room', () => {
    const { made, drawn } = plot([]);
    const breaks = [
      { time: 1, line: 'loss', label: 'NaN' },
      { time: 1.5, line: 'loss', label: 'NaN' },
      { time: 5, line: 'loss', label: '∞' },
      { time: 11, line: 'loss', label: 'NaN' }
    ];
    drawBreaks(made, { ...CHART, breaks }, THEME);
    expect(drawn.filter(one => one.startsWith('at'))).toHaveLength(3);
    expect(drawn.filter(one => one.startsWith('text'))).toEqual([
      'text NaN 12 0',
      'text ∞ 52 0'
    ]);
  });
});

describe('an event', () => {
  const marks = [
    { time_s: 2, end_s: 6, label: 'slower' },
    { time_s: 11, label: 'not shown yet' }
  ];

  it('is a line where it began, shaded until its end, and named once', () => {
    const { made, drawn } = plot([]);
    drawEvents(made, { ...CHART, marks, namesMarks: true }, THEME);
    expect(drawn).toEqual([
      'at 20 0',
      'shaded 20 0 40 100',
      'text slower 23 0'
    ]);
  });

  it('has no name on the other charts', () => {
    const { made, drawn } = plot([]);
    drawEvents(made, { ...CHART, marks }, THEME);
    expect(drawn).toEqual(['at 20 0', 'shaded 20 0 40 100']);
  });
});
