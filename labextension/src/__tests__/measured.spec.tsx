import { cleanup, render, screen } from '@testing-library/react';
import * as React from 'react';

import * as formats from '../formats';
import { Measured } from '../measured';

afterEach(cleanup);

describe('a number on the page', () => {
  it('that is known is only itself', () => {
    const { container } = render(
      <Measured value={0} write={formats.percent} reason="not measured" />
    );
    expect(container.innerHTML).toBe('0.0\u202f%');
  });

  it('that is known says more when pointed at, if there is more', () => {
    render(<Measured value={3} write={formats.count} more="5 reserved" />);
    expect(screen.getByText('3').title).toBe('5 reserved');
  });

  it.each([null, undefined, NaN])('that is %s is n/a, and says why', value => {
    render(
      <Measured value={value} write={formats.rate} reason="not measured" />
    );
    expect(screen.getByText('n/a').title).toBe('not measured');
  });

  it.each([
    ['NaN', 'NaN'],
    ['Infinity', '∞'],
    ['-Infinity', '−∞']
  ] as const)('that is %s is %s, in red', (value, written) => {
    render(<Measured value={value} write={formats.loss} />);
    expect(screen.getByText(written).className).toBe('mnt-alarm');
  });
});

describe('a tick', () => {
  it.each([
    [200, 100, '200'],
    [1000, 1000, '1,000'],
    [0.2, 0.2, '0.2'],
    [0.05, 0.05, '0.05'],
    [0.00002, 0.00002, '0.00002'],
    [2.5, 0.5, '2.5'],
    [3, 1, '3']
  ])('at %s, %s from the next, is %s', (value, step, written) => {
    expect(formats.plain(value, step)).toBe(written);
  });
});
