import {
  before,
  interpolate,
  moved,
  nearest,
  ordered,
  pixelOf,
  shownRange,
  valueAt,
  widened
} from '../liveview/axis/range';

const xs = Float64Array.of(10, 20, 40);

describe('interpolation between samples', () => {
  const ys = Float64Array.of(1, 2, 6);

  it('is on the line between its neighbors, and exact at samples', () => {
    expect(
      [10, 15, 20, 30, 40].map(at => interpolate(xs, ys, at, 'none'))
    ).toEqual([1, 1.5, 2, 4, 6]);
  });

  it('is clamped, extended or unknown outside', () => {
    expect(interpolate(xs, ys, 0, 'clamp')).toBe(1);
    expect(interpolate(xs, ys, 99, 'clamp')).toBe(6);
    expect(interpolate(xs, ys, 0, 'extend')).toBe(0);
    expect(interpolate(xs, ys, 50, 'extend')).toBe(8);
    expect(interpolate(xs, ys, 50, 'none')).toBeNaN();
    expect(interpolate(xs, ys, NaN, 'clamp')).toBeNaN();
  });

  it('knows nothing without samples, and one value with one', () => {
    const none = new Float64Array();
    const one = Float64Array.of(5);
    for (const outside of ['clamp', 'extend', 'none'] as const) {
      expect(interpolate(none, none, 1, outside)).toBeNaN();
      expect(interpolate(one, one, 5, outside)).toBe(5);
    }
    expect(interpolate(one, one, 9, 'extend')).toBe(5);
  });

  it('survives two samples at one place', () => {
    const twice = Float64Array.of(1, 1, 2);
    expect(interpolate(twice, twice, 1, 'clamp')).toBe(1);
  });
});

describe('samples', () => {
  it('are found at, before and near a place', () => {
    expect([5, 10, 19, 40, 99].map(at => before(xs, at))).toEqual([
      -1, 0, 0, 2, 2
    ]);
    expect([5, 14, 16, 30, 31, 99].map(at => nearest(xs, at))).toEqual([
      0, 0, 1, 1, 2, 2
    ]);
    expect(nearest([], 1)).toBe(-1);
  });
});

describe('a range', () => {
  const whole = [10, 40] as const;

  it('is ordered whichever way it is dragged', () => {
    expect(ordered(30, 20)).toEqual([20, 30]);
  });

  it('keeps its width when it is moved to an end', () => {
    expect(moved([20, 30], 5, whole)).toEqual([25, 35]);
    expect(moved([20, 30], 500, whole)).toEqual([30, 40]);
    expect(moved([20, 30], -500, whole)).toEqual([10, 20]);
    expect(moved([0, 90], 1, whole)).toEqual(whole);
  });

  it('holds at least two samples', () => {
    expect(widened([12, 38], xs, whole)).toEqual([12, 40]);
    expect(widened([10, 20], xs, whole)).toEqual([10, 20]);
    expect(widened([22, 23], xs, whole)).toEqual([20, 40]);
    expect(widened([39, 39], xs, whole)).toEqual([20, 40]);
    expect(widened([-9, -8], xs, whole)).toEqual([10, 20]);
  });

  it('that does not follow stays where it is as steps come', () => {
    const zoom = { range: [20, 30] as const, follows: false };
    expect(shownRange(zoom, [10, 40], 10)).toEqual([20, 30]);
    expect(shownRange(zoom, [10, 90], 10)).toEqual([20, 30]);
    expect(shownRange({ ...zoom, follows: true }, [10, 90], 10)).toEqual([
      80, 90
    ]);
  });

  it('begins where asked, or at the first step', () => {
    expect(shownRange(null, whole, 25)).toEqual([25, 40]);
    expect(shownRange(null, whole, -Infinity)).toEqual([10, 40]);
  });

  it('is drawn and pointed at in the same places', () => {
    const px = pixelOf(25, [20, 30], 52, 800);
    expect(px).toBe(452);
    expect(valueAt(px, [20, 30], 52, 800)).toBe(25);
    expect(pixelOf(5, [5, 5], 52, 800)).toBe(52);
    expect(valueAt(60, [5, 9], 52, 0)).toBe(5);
  });
});
