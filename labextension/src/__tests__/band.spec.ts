import { band } from '../series/band';

describe('a band', () => {
  it('is the lowest, the median and the highest at each time', () => {
    const x = Float64Array.of(1, 2, 3);
    const lines = [10, 20, 60].map(value => ({
      x,
      y: Float64Array.of(value, value + 1, NaN)
    }));
    const made = band(lines);
    expect([...made.low]).toEqual([10, 11, NaN]);
    expect([...made.middle]).toEqual([20, 21, NaN]);
    expect([...made.high]).toEqual([60, 61, NaN]);
  });

  it('takes each line’s last value at that time', () => {
    const made = band([
      { x: Float64Array.of(1, 2, 3), y: Float64Array.of(1, 2, 3) },
      { x: Float64Array.of(2.5), y: Float64Array.of(100) }
    ]);
    expect([...made.high]).toEqual([1, 2, 100]);
  });
});
