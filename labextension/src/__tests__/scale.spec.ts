import { logTicks, valueRange } from '../liveview/charts/scale';

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

describe('a logarithmic axis', () => {
  const chart = { limit: undefined };
  const ends = (low: number, high: number) =>
    valueRange(chart, 'log', low, high);

  it.each([
    [0.19, 0.21, [0.1, 0.5], [0.1, 0.2, 0.5]],
    [1.83, 1.9, [1, 2], [1, 2]],
    [208, 1008, [200, 2000], [200, 500, 1000, 2000]],
    [1.8, 5.4, [1, 10], [1, 2, 5, 10]],
    [0.0003, 70, [0.0002, 100], [0.001, 0.01, 0.1, 1, 10, 100]]
  ])(
    'of %s to %s ends and has ticks at 1, 2, 5 × 10ⁿ',
    (low, high, range, ticks) => {
      expect(ends(low, high)).toEqual(range);
      expect(logTicks(range[0], range[1])).toEqual(ticks);
    }
  );

  it('leaves no positive value outside, however large or small', () => {
    for (let exponent = -12; exponent <= 12; exponent++) {
      for (const leading of [1, 1.5, 2, 3, 5, 7, 9.99]) {
        const value = leading * 10 ** exponent;
        const [low, high] = ends(value, value);
        expect(low).toBeLessThan(value);
        expect(high).toBeGreaterThan(value);
        expect(logTicks(low, high).length).toBeGreaterThanOrEqual(2);
      }
    }
  });

  it('of no positive value is any decade', () => {
    expect(ends(-3, 0)).toEqual([0.1, 1]);
    expect(valueRange(chart, 'log', null, null)).toEqual([0.1, 1]);
  });
});

describe('a linear axis', () => {
  it.each(['auto', 'zero'] as const)(
    'of scale %s has every value inside',
    scale => {
      for (const [least, most] of [
        [0, 0],
        [5, 5],
        [-2, 1e9],
        [1e-9, 2e-9]
      ]) {
        const [low, high] = valueRange({}, scale, least, most);
        expect(low).toBeLessThanOrEqual(least);
        expect(high).toBeGreaterThan(most);
      }
    }
  );
});
