import { valueRange } from '../liveview/charts/scale';

describe('a value axis', () => {
  const chart = { limit: undefined } as any;

  it('begins at zero when asked', () => {
    expect(valueRange(chart, 'zero', 50, 100)[0]).toBe(0);
  });

  it('never falls below zero by padding', () => {
    expect(valueRange(chart, 'auto', 0.1, 100)[0]).toBe(0);
  });

  it('of logarithms has no zero', () => {
    expect(valueRange(chart, 'log', 0, 100)[0]).toBeGreaterThan(0);
  });
});
