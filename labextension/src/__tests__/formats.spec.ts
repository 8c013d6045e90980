import * as formats from '../formats';
import type { Capacity } from '../schema';

describe('numbers', () => {
  it.each([
    [formats.rate(1857.4), '1,857'],
    [formats.shortCount(63_400, 200), '63.4\u202fk'],
    [formats.shortCount(20_000, 5_000), '20\u202fk'],
    [formats.shortCount(0, 500), '0'],
    [formats.percent(0.409), '40.9\u202f%'],
    [formats.loss(0.8716), '0.872'],
    [formats.loss(1e25), '1.00e+25'],
    [formats.seconds(35.31), '35.3\u00a0s'],
    [formats.seconds(0.0894), '89\u00a0ms'],
    [formats.bitRate(117.6e6), '941\u00a0Mbit/s'],
    [formats.bitRate(1.176e9), '9.41\u00a0Gbit/s'],
    [formats.bitRate(0), '0\u00a0bit/s'],
    [formats.gibibytes(24 * 2 ** 30), '24.0\u00a0GiB'],
    [formats.duration(14_640), '4\u00a0h 04\u00a0min'],
    [formats.duration(59.6), '1\u00a0min 00\u00a0s'],
    [formats.latency(0.0004), '0.4\u00a0ms'],
    [formats.latency(0.0000254), '25\u00a0µs'],
    [formats.duration(9), '9\u00a0s'],
    [formats.duration(200_000), '2\u00a0d 07\u00a0h']
  ])('are written as people read them: %s', (written, wanted) => {
    expect(written).toBe(wanted);
  });

  it('say when a capacity was measured, and what disturbed it', () => {
    const now = Date.now() / 1000;
    const one = (secondsAgo: number, condition?: Capacity['condition']) => ({
      bytes_per_s: 117.6e6,
      source: 'measured' as const,
      time_s: now - secondsAgo,
      condition
    });
    const given = { bytes_per_s: 1.2e8, source: 'given' as const };
    const starved = {
      ...one(300, 'short of CPU'),
      bytes_per_s: 125e6
    };
    const said = [
      [one(3 * 86_400, 'beside a job')],
      [one(7300, 'alone'), starved],
      [starved, { ...starved, bytes_per_s: 1.25e9 }],
      [{ ...starved, time_s: 0 }],
      [given, { ...given, bytes_per_s: 1e8 }]
    ].map(known => formats.capacity(known).replace(/\u00a0/g, ' '));
    expect(said).toEqual([
      '941 Mbit/s, measured 3 days ago, beside a job',
      '941 Mbit/s to 1 Gbit/s, measured up to 2 h ago, some while short of CPU',
      '1 to 10 Gbit/s, measured 5 min ago, while short of CPU',
      '1 Gbit/s, measured while short of CPU',
      '800 to 960 Mbit/s, as given'
    ]);
  });

  it.each([null, undefined, NaN, Infinity])(
    'that are absent are no 0: %s',
    value => {
      for (const write of [
        formats.rate,
        formats.percent,
        formats.loss,
        formats.seconds,
        formats.duration,
        formats.bitRate,
        formats.gibibytes,
        formats.clock
      ]) {
        expect((write as (value: unknown) => string)(value)).toBe('n/a');
      }
    }
  );
});
