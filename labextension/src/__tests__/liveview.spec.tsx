import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';

import { checkBundle } from '../liveview/bundle';
import { charts, type IChoice, slowestRank } from '../liveview/chartdata';
import { LiveController } from '../liveview/controller';
import { align, valueRange } from '../liveview/plot';
import { spread } from '../liveview/spread';
import { csv } from '../liveview/tables';
import { SeriesStore } from '../series';
import { bundle, job, JOB_ID, rank, series } from './samples';

const trans = nullTranslator.load('jupyter_mntrain');

const THEME = {
  ranks: ['#1', '#2', '#3', '#4'],
  job: '#5',
  fill: '#6',
  other: '#7',
  grid: '',
  axis: '',
  text: '',
  secondary: '',
  band: '',
  font: 'x'
};

function stored(fields: Parameters<typeof series>[0] = {}): SeriesStore {
  const store = new SeriesStore();
  store.take(series(fields));
  return store;
}

const ALL: IChoice = { rank: null, node: null };

describe('a bundle', () => {
  it('of ours is drawn', () => {
    expect(checkBundle(bundle()).bundle).toBeDefined();
  });

  it.each([
    ['nothing', null],
    ['text', 'job'],
    ['another id', bundle({ job: job({ job_id: '../etc' }) })],
    ['other rows', bundle({ series: series({ job_id: 'j-00000001' }) })],
    ['no ranks', bundle({ job: job({ ranks: undefined as any }) })],
    [
      'code for numbers',
      bundle({
        series: series({ ranks: [{ ...rank(0, 1), mfu: [{}] as any }] })
      })
    ]
  ])('with %s is not', (_, data) => {
    expect(checkBundle(data).problem).toBe('damaged');
  });

  it('of a newer version says so', () => {
    expect(checkBundle(bundle({ version: 99 })).problem).toBe('newer');
  });
});

describe('charts', () => {
  const keys = (store: SeriesStore, choice = ALL) =>
    Object.fromEntries(
      charts(store, job(), THEME, choice, trans).map(chart => [
        chart.key,
        chart.lines.map(line => line.key)
      ])
    );

  it('have a line for the job and one per rank', () => {
    expect(keys(stored()).throughput).toEqual(['r0', 'r1', 'job']);
    expect(keys(stored()).links).toBeUndefined();
  });

  it('show only the picked rank', () => {
    expect(keys(stored(), { rank: 1, node: null }).bubble).toEqual(['r1']);
  });

  it('show a band and the slowest of many ranks', () => {
    const ranks = Array.from({ length: 64 }, (_, i) =>
      rank(i, 3, 1, {
        pace_tokens_per_s: [0, 0, 0].map(() => (i === 37 ? 90 : 100))
      })
    );
    const store = stored({ ranks });
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
    const made = charts(stored(), job(), THEME, ALL, trans);
    expect(made.find(chart => chart.key === 'mfu')?.note).toContain(
      'not known'
    );
  });

  it('mirror a link at zero, each direction by its sender', () => {
    const link = (node: string, sent: number) => ({
      node,
      interface: 'eno1',
      basis: 'interface' as const,
      capacity_bytes_per_s: 1000,
      capacity_source: 'measured' as const,
      time_s: [1001],
      sent: [sent],
      received: [5],
      own_sent: [sent / 2],
      own_received: [5]
    });
    const store = stored({ links: [link('wopr', 400), link('muthur', 200)] });
    const placements = ['wopr', 'muthur'].map(node => ({ node })) as any;
    const chart = charts(store, job({ placements }), THEME, ALL, trans).find(
      one => one.key === 'links'
    )!;
    expect(chart.lines.map(line => [line.key, line.y[0]])).toEqual([
      ['all-0', 0.4],
      ['own-0', 0.2],
      ['all-1', -0.2],
      ['own-1', -0.1]
    ]);
    expect(chart.lines[1].label).toBe('to muthur');
    expect(chart.limit).toBeCloseTo(1.02);
  });
});

describe('a value axis', () => {
  const chart = { limit: undefined } as any;

  it('begins at zero when asked', () => {
    expect(valueRange({ chart, scale: 'zero' }, 50, 100)[0]).toBe(0);
  });

  it('never falls below zero by padding', () => {
    expect(valueRange({ chart, scale: 'auto' }, 0.1, 100)[0]).toBe(0);
  });

  it('of logarithms has no zero', () => {
    expect(valueRange({ chart, scale: 'log' }, 0, 100)[0]).toBeGreaterThan(0);
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

describe('labels', () => {
  it('keep their order, their distance and the chart’s bounds', () => {
    const placed = spread([50, 52, 51, 99, 99], 14, 0, 100);
    const order = [0, 2, 1, 3, 4];
    order.slice(1).forEach((label, i) => {
      expect(placed[label] - placed[order[i]]).toBeGreaterThanOrEqual(13.99);
    });
    expect(Math.max(...placed)).toBeLessThanOrEqual(100);
    expect(Math.min(...placed)).toBeGreaterThanOrEqual(0);
  });

  it('that fit stay where they are', () => {
    expect(spread([10, 60], 14, 0, 100)).toEqual([10, 60]);
  });
});

it('a row per rank and step is copied', () => {
  const lines = csv(stored()).trim().split('\n');
  expect(lines).toHaveLength(9);
  expect(lines[1]).toContain('0,"wopr",1001,1');
});

describe('a live view', () => {
  class FakeModel {
    connection = 'live';
    status = { cluster: 'lab' };
    known = true;
    changed = new Signal<any, void>(this);
    watched = 0;
    job() {
      return this.known ? job({ state: 'running' }) : undefined;
    }
    watch() {
      this.watched += 1;
      return { dispose: () => (this.watched -= 1), isDisposed: false };
    }
  }

  it('watches a job the server knows, and stops when disposed', () => {
    const model = new FakeModel();
    const controller = new LiveController(JOB_ID, model as any);
    expect(controller.isLive).toBe(true);
    expect(model.watched).toBe(1);
    controller.dispose();
    expect(model.watched).toBe(0);
  });

  it('draws what the notebook holds while the server is silent', () => {
    const model = new FakeModel();
    model.connection = 'missing';
    const controller = new LiveController(JOB_ID, model as any);
    controller.takeBundle(bundle({ job: job({ state: 'succeeded' }) }));
    expect(controller.stillness).toBe('missing');
    expect(controller.job?.state).toBe('succeeded');
    expect(controller.store.isEmpty).toBe(false);
    controller.dispose();
  });

  it('takes the server’s word over the notebook’s', () => {
    const controller = new LiveController(JOB_ID, new FakeModel() as any);
    controller.takeBundle(bundle({ job: job({ state: 'failed' }) }));
    expect(controller.job?.state).toBe('running');
    controller.dispose();
  });

  it('says when another cluster has the job', () => {
    const model = new FakeModel();
    model.known = false;
    const controller = new LiveController(JOB_ID, model as any);
    controller.takeBundle(bundle({ cluster: 'attic' }));
    expect(controller.stillness).toBe('other-cluster');
    controller.takeBundle(bundle());
    expect(controller.stillness).toBe('not-known');
    controller.dispose();
  });
});
