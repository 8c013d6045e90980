import { align, readingAt } from '../liveview/charts/align';
import { written } from '../liveview/charts/labels';
import { lossChart } from '../liveview/charts/loss';
import { job, stored, summary, THEME } from './samples';

const choice = { rank: null, node: null };

/** The chart of a run whose loss is this, a second per step. */
function chartOf(loss: any[], fields: Parameters<typeof summary>[1] = {}) {
  const time_s = loss.map((_, i) => 1000 + i);
  const store = stored({
    job: { time_s, step: time_s, loss } as any,
    summary: summary(undefined, fields)
  });
  return lossChart({ store, job: job(), theme: THEME, choice });
}

function label(loss: any[], pointed: number | null = null): string {
  const chart = chartOf(loss);
  const data = align(chart.lines);
  return written(chart, readingAt(chart, chart.lines[0], data, pointed));
}

describe('a loss that is not finite', () => {
  it('is counted in the chart, with the time of each', () => {
    const chart = chartOf([4, 'NaN', 3, 'Infinity', null], {
      not_finite: 2,
      first_not_finite_step: 1001
    });
    expect(chart.alarm).toBe(
      'NaN or infinite loss or gradient in 2 steps, first in step 1,001'
    );
    expect(chart.breaks).toEqual([
      { time: 1001, line: 'loss', label: 'NaN' },
      { time: 1003, line: 'loss', label: '∞' }
    ]);
    expect([...chart.lines[0].y]).toEqual([4, NaN, 3, NaN, NaN]);
  });

  it('is what the label says, not the last finite one', () => {
    expect(label([4, 3, 'NaN'])).toBe('NaN');
    expect(label([4, 'NaN', 3])).toBe('3.000');
    expect(label([4, 3, '-Infinity', null])).toBe('−∞');
  });

  it('is what the label says where the pointer is', () => {
    const loss = [4, 'NaN', 3, 'Infinity', 2];
    expect([0, 1, 2, 3, 4].map(row => label(loss, 1000 + row))).toEqual([
      '4.000',
      'NaN',
      '3.000',
      '∞',
      '2.000'
    ]);
  });

  it('is drawn also where no loss was ever finite', () => {
    const chart = chartOf(['NaN', 'NaN']);
    expect(chart.note).toBeUndefined();
    expect(chart.lines).toHaveLength(1);
    expect(label(['NaN', 'NaN'])).toBe('NaN');
  });

  it('of no run is no alarm', () => {
    expect(chartOf([4, null, 3]).alarm).toBeUndefined();
  });
});
