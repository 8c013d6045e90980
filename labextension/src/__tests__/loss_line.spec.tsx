import { cleanup, render, screen } from '@testing-library/react';
import * as React from 'react';

import { lossOf, lossPath, lossWords, pointsOf } from '../runs/loss_line';
import { Sparkline } from '../runs/sparkline';
import type { LossLine } from '../schema';
import { job } from './samples';

afterEach(cleanup);

const ROOM = { width: 100, height: 10 };

function withLine(lows: LossLine['lows'], fields: Partial<LossLine> = {}) {
  const known = lows.filter(low => low !== null);
  return job({
    loss_line: {
      begin: 1,
      width: 1,
      lows,
      highs: lows,
      first: known[0],
      last: known[known.length - 1],
      ...fields
    }
  });
}

describe('the line of losses', () => {
  it('is as wide as the steps made of those to make, the highest loss on top', () => {
    const path = lossPath([withLine([4, 3, 2], { total_steps: 6 })], ROOM);
    expect(path).toBe(
      'M16.7 0.0L33.3 5.0L50.0 10.0L50.0 10.0L33.3 5.0L16.7 0.0Z'
    );
  });

  it('is a band where several steps are one point', () => {
    const line = { begin: 0, width: 4, lows: [2, 1], highs: [5, 3] };
    expect(lossPath([withLine([], { ...line, total_steps: 10 })], ROOM)).toBe(
      'M15.0 0.0L55.0 5.0L55.0 10.0L15.0 7.5Z'
    );
  });

  it('is interrupted where no loss was finite, not where none was told', () => {
    const bands = (...lows: LossLine['lows']) =>
      lossPath([withLine(lows)], ROOM).split('M').length - 1;
    expect(bands(4, 'NaN', 2)).toBe(2);
    expect(bands(4, null, 2)).toBe(1);
    expect(bands('NaN', 'NaN')).toBe(0);
  });

  it('of a run goes through its jobs; a step made again counts once', () => {
    const first = withLine([9, 8, 7, 6]);
    const second = withLine([5, 4], { begin: 3 });
    const points = pointsOf([second, first]);
    expect(points.map(({ step, low }) => [step, low])).toEqual([
      [1, 9],
      [2, 8],
      [3, 5],
      [4, 4]
    ]);
    expect(lossWords([second, first])).toBe('loss from 9.000 to 4.000');
  });

  it('of equal losses lies in the middle', () => {
    expect(lossPath([withLine([3, 3])], ROOM)).toContain('50.0 5.0');
  });

  it('is a picture with a name; a job without losses has none', () => {
    const { container } = render(<Sparkline jobs={[job()]} />);
    expect(container.innerHTML).toBe('');
    render(<Sparkline jobs={[withLine([4.25, 'NaN'], { last: 'NaN' })]} />);
    expect(
      screen.getByRole('img', { name: 'loss from 4.250 to NaN' })
    ).toBeTruthy();
  });

  it('says the last loss of a job whose journals are not read', () => {
    const old = withLine([4, 2]);
    expect(lossOf({ ...old, numbers: { step: 2 } })).toBe(2);
    expect(lossOf({ ...old, numbers: { step: 2, loss: 2.5 } })).toBe(2.5);
    expect(lossOf(job())).toBeNull();
  });
});
