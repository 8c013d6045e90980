import { align, readingAt } from '../liveview/charts/align';
import { charts } from '../liveview/charts/charts';
import type { IChoice } from '../liveview/charts/chart';
import { slowestRank } from '../liveview/charts/rank_lines';
import type { SeriesStore } from '../series/store';
import {
  job,
  linkSummary,
  rank,
  rankSummary,
  stored,
  summary,
  THEME
} from './samples';

const ALL: IChoice = { rank: null, node: null };

describe('charts', () => {
  const keys = (store: SeriesStore, choice = ALL) =>
    Object.fromEntries(
      charts({ store, job: job(), theme: THEME, choice }).map(chart => [
        chart.key,
        chart.lines.map(line => line.key)
      ])
    );

  it('have a line for the job and one per rank', () => {
    expect(keys(stored()).throughput).toEqual(['r0', 'r1', 'job']);
    expect(keys(stored()).links).toBeUndefined();
  });

  it('label the job with its headline figure, also where that is not known', () => {
    const label = (tokens_per_s?: number) => {
      const store = stored({ summary: summary(undefined, { tokens_per_s }) });
      const [throughput] = charts({
        store,
        job: job(),
        theme: THEME,
        choice: ALL
      });
      const line = throughput.lines.find(one => one.key === 'job')!;
      return readingAt(throughput, line, align(throughput.lines), null).value;
    };
    expect(label(90)).toBe(90);
    expect(label()).toBeNaN();
  });

  it('show the predicted throughput, unless it is far off', () => {
    const levels = (predicted_tokens_per_s?: number) => {
      const store = stored({
        summary: summary(undefined, { predicted_tokens_per_s })
      });
      return charts({ store, job: job(), theme: THEME, choice: ALL })[0].levels;
    };
    expect(levels(100)).toEqual([
      { at: 100, label: 'predicted', value: '100', isDashed: true }
    ]);
    expect(levels(100_000)).toEqual([]);
    expect(levels()).toEqual([]);
  });

  it('show only the picked rank', () => {
    expect(keys(stored(), { rank: 1, node: null }).compute).toEqual(['r1']);
  });

  it('show a band and the slowest of many ranks', () => {
    const ranks = Array.from({ length: 64 }, (_, i) =>
      rank(i, 3, 1, {
        pace_tokens_per_s: [0, 0, 0].map(() => (i === 37 ? 90 : 100))
      })
    );
    const who = ranks.map(one => rankSummary(one.rank));
    const store = stored({
      ranks,
      summary: summary(who, { slowest_rank: 37 })
    });
    expect(slowestRank(store)).toBe(37);
    expect(keys(store).throughput).toEqual([
      'max',
      'min',
      'median',
      'r37',
      'job'
    ]);
  });

  it('say what is missing instead of drawing nothing', () => {
    const missing = { mfu: 'the peak of cpu is not known' };
    const store = stored({ summary: summary(undefined, { missing }) });
    const made = charts({
      store,
      job: job(),
      theme: THEME,
      choice: ALL
    });
    expect(made.find(chart => chart.key === 'mfu')?.note).toContain(
      'not known'
    );
  });
});

describe('the chart of the loss', () => {
  it('draws evaluations as a second line of the loss, from before the first step', () => {
    const lossOf = (store: SeriesStore) =>
      charts({ store, job: job(), theme: THEME, choice: ALL }).find(
        one => one.key === 'loss'
      )!;
    expect(lossOf(stored()).lines.map(line => line.label)).toEqual(['loss']);
    const evaluation = { time_s: [1000, 1004], step: [0, 4], loss: [4.5, 2.5] };
    const chart = lossOf(stored({ evaluation }));
    const [, line] = chart.lines;
    expect(line.label).toBe('evaluation');
    expect(line.isMarked).toBe(true);
    expect([...line.x]).toEqual([1000, 1004]);
    expect([...line.y]).toEqual([4.5, 2.5]);
    const [x, , drawn] = align(chart.lines);
    expect([...x]).toEqual([1000, 1001, 1002, 1003, 1004]);
    expect([drawn[0], drawn[4]]).toEqual([4.5, 2.5]);
  });
});

describe('the chart of a link', () => {
  it('is mirrored at zero, each direction by its sender', () => {
    const link = (node: string, sent: number) => ({
      node,
      time_s: [1001],
      sent: [sent],
      received: [5],
      own_sent: [sent / 2],
      own_received: [5]
    });
    const capacity = { bytes_per_s: 1000, source: 'given' as const };
    const links = ['wopr', 'muthur'].flatMap(node => [
      linkSummary(node, 'sent', { capacity, utilization: 0.39 }),
      linkSummary(node, 'received', { capacity })
    ]);
    const store = stored({
      links: [link('wopr', 400), link('muthur', 200)],
      summary: summary(undefined, { links })
    });
    const placements = ['wopr', 'muthur'].map(node => ({ node })) as any;
    const chart = charts({
      store,
      job: job({ placements }),
      theme: THEME,
      choice: ALL
    }).find(one => one.key === 'links')!;
    expect(chart.lines.map(line => [line.key, line.y[0]])).toEqual([
      ['all-0', 0.4],
      ['own-0', 0.2],
      ['all-1', -0.2],
      ['own-1', -0.1]
    ]);
    expect(chart.lines[1].label).toBe('to muthur');
    expect([chart.lines[1].now, chart.lines[3].now]).toEqual([0.39, -0.39]);
    expect(chart.limit).toBeCloseTo(1.02);
    expect(chart.subtitle).toContain('100\u202f% = 8\u00a0kbit/s, as given');
  });

  it('gives the reason where no sample has a value, instead of an empty frame', () => {
    const none = { sent: [null], received: [null] } as any;
    const links = ['wopr', 'muthur'].map(node => ({
      ...{ node, time_s: [1001], own_sent: [null], own_received: [null] },
      ...none
    }));
    const missing = { busiest_link: 'lo is not counted' };
    const told = ['wopr', 'muthur'].map(node => linkSummary(node, 'sent', {}));
    const store = stored({
      links,
      summary: summary(undefined, { links: told, missing })
    });
    const placements = ['wopr', 'muthur'].map(node => ({ node })) as any;
    const chart = charts({
      store,
      job: job({ placements }),
      theme: THEME,
      choice: ALL
    }).find(one => one.key === 'links')!;
    expect(chart.note).toBe('n/a: lo is not counted');
  });
});

describe('the label of a line', () => {
  const reading = (now?: number | null) => {
    const [x, y] = [
      [1, 2, 3],
      [10, 30, NaN]
    ].map(one => Float64Array.from(one));
    const line = { key: 'r0', x, y, now } as any;
    return readingAt({ lines: [line] }, line, align([line]), null);
  };

  it('says the recent figure, and is at the end of its line', () => {
    expect(reading(20)).toMatchObject({ value: 20, height: 30, broken: null });
  });

  it('is there also where the recent figure is not known', () => {
    expect(reading(null)).toMatchObject({
      value: NaN,
      height: 30,
      broken: null
    });
  });
});

describe('lines with clocks of their own', () => {
  it('share one axis', () => {
    const line = (x: number[], y: number[]) =>
      ({ x: Float64Array.from(x), y: Float64Array.from(y) }) as any;
    const [x, first, second] = align([line([1, 3], [10, 30]), line([2], [20])]);
    expect([...x]).toEqual([1, 2, 3]);
    expect(first[0]).toBe(10);
    expect(second[1]).toBe(20);
  });
});
