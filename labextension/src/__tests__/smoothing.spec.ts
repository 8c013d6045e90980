import { smooth, smoothed } from '../liveview/axis/smoothing';
import { charts } from '../liveview/charts/charts';
import { job, stored, THEME } from './samples';

describe('an exponential mean', () => {
  it('has no bias at the start: of equal values it is that value', () => {
    const same = Float64Array.of(7, 7, 7, 7);
    for (const weight of [0, 0.5, 0.9, 0.99]) {
      smoothed(same, weight).forEach(value => expect(value).toBeCloseTo(7, 9));
    }
  });

  it('is the weighted mean of all values so far', () => {
    const [first, second, third] = smoothed(Float64Array.of(1, 3, 5), 0.5);
    expect(first).toBe(1);
    expect(second).toBeCloseTo((0.25 * 1 + 0.5 * 3) / 0.75, 12);
    expect(third).toBeCloseTo((0.125 * 1 + 0.25 * 3 + 0.5 * 5) / 0.875, 12);
  });

  it('of rates is what was done over the time that it took', () => {
    // Four steps of 0.1 s, then one of 1.5 s, 1,000 tokens each: 5,000 in 1.9 s.
    const seconds = Float64Array.from({ length: 2000 }, (_, at) =>
      at % 5 === 4 ? 1.5 : 0.1
    );
    const rates = seconds.map(one => 1000 / one);
    const shown = smoothed(rates, 0.99, undefined, seconds);
    for (const end of [999, 1501, 1998]) {
      expect(Math.abs(shown[end] / (5000 / 1.9) - 1)).toBeLessThan(0.05);
    }
    expect(smoothed(rates, 0.99)[1999]).toBeGreaterThan(2 * (5000 / 1.9));
  });

  it('of weight 0 is the value itself', () => {
    expect([...smoothed(Float64Array.of(1, 9, 4), 0)]).toEqual([1, 9, 4]);
  });

  it('leaves gaps as they are, and goes on after them', () => {
    const [a, gap, b] = smoothed(Float64Array.of(1, NaN, 1), 0.9);
    expect([a, gap]).toEqual([1, NaN]);
    expect(b).toBeCloseTo(1, 12);
  });
});

describe('a smoothed chart', () => {
  const [throughput] = charts({
    store: stored(),
    job: job(),
    theme: THEME,
    choice: { rank: null, node: null }
  });

  it('has each raw line behind, thin, faint and without a label', () => {
    const { lines } = smooth(throughput, 0.9);
    expect(lines.map(line => line.key)).toEqual([
      ...throughput.lines.map(line => `raw-${line.key}`),
      ...throughput.lines.map(line => line.key)
    ]);
    const raw = lines.find(line => line.key === 'raw-job')!;
    expect(raw).toMatchObject({ width: 1, isQuiet: true, opacity: 0.38 });
    expect([...raw.y]).toEqual([90, 91, 92, 93]);
    const job = lines.find(line => line.key === 'job')!;
    expect(job.y[3]).toBeLessThan(93);
    expect(job.now).toBeUndefined();
  });

  it('is the chart itself without smoothing', () => {
    expect(smooth(throughput, 0)).toBe(throughput);
  });
});

describe('runs of unequal length', () => {
  const loss = (step: number) => 3 / step ** 0.5;

  /** The same loss at each step, in rows of `size` steps: their mean, at the last of them. */
  function rows(size: number): [Float64Array, Float64Array] {
    const ends = Array.from(
      { length: 1200 / size },
      (_, at) => (at + 1) * size
    );
    const means = ends.map(
      end =>
        Array.from({ length: size }, (_, back) => loss(end - back)).reduce(
          (sum, one) => sum + one
        ) / size
    );
    return [Float64Array.from(means), Float64Array.from(ends)];
  }

  it('are smoothed alike, per step', () => {
    const [single, singleSteps] = rows(1);
    const [thinned, thinnedSteps] = rows(20);
    const one = smoothed(single, 0.99, singleSteps);
    const other = smoothed(thinned, 0.99, thinnedSteps);
    for (const step of [400, 800, 1200]) {
      const [true_, shown] = [one[step - 1], other[step / 20 - 1]];
      expect(Math.abs(shown / true_ - 1)).toBeLessThan(0.02);
    }
  });
});
