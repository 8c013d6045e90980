import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { render, screen } from '@testing-library/react';
import * as React from 'react';

import { checkBundle } from '../liveview/bundle';
import { charts, type IChoice, slowestRank } from '../liveview/chartdata';
import { LiveController } from '../liveview/controller';
import { align, valueRange } from '../liveview/plot';
import { Samples } from '../liveview/samples';
import { spread } from '../liveview/spread';
import { csv } from '../liveview/tables';
import type { WrittenText } from '../schema';
import { SeriesStore } from '../series';
import { bundle, job, JOB_ID, rank, series, written } from './samples';

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
      'code for evaluations',
      bundle({ series: series({ evaluation: { loss: [{}] as any } }) })
    ],
    [
      'code for texts',
      bundle({
        series: series({ texts: [{ ...written(1), text: {} as any }] })
      })
    ],
    [
      'a text without end',
      bundle({ series: series({ texts: [written(1, 'x'.repeat(20_000))] }) })
    ],
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

  it('draw evaluations as a second line of the loss, from before the first step', () => {
    const lossOf = (store: SeriesStore) =>
      charts(store, job(), THEME, ALL, trans).find(one => one.key === 'loss')!;
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

describe('samples', () => {
  const shown = (texts: WrittenText[]) =>
    render(<Samples texts={texts} trans={trans} />);
  const words = (node: Element) =>
    [...node.querySelectorAll('.mnt-text')].map(one => one.textContent);

  it('are nothing where a job has none', () => {
    expect(shown([]).container.innerHTML).toBe('');
  });

  it('show the newest for each prompt, and the ones before it folded, newest first', () => {
    shown([
      written(0, 'a', 'One'),
      written(0, 'b', 'Two'),
      written(5, 'c', 'One'),
      written(5, 'd', 'Two'),
      written(9, 'e', 'One')
    ]);
    const one = screen.getByRole('article', { name: 'One' });
    expect(words(one)).toEqual(['e', 'c', 'a']);
    expect(one.querySelector('.mnt-written')!.textContent).toContain('step 9');
    const earlier = one.querySelector('details')!;
    expect(earlier.open).toBe(false);
    expect(earlier.querySelector('summary')!.textContent).toBe('Earlier: 2');
    expect(words(earlier)).toEqual(['c', 'a']);
    const two = screen.getByRole('article', { name: 'Two' });
    expect(words(two)).toEqual(['d', 'b']);
  });

  it('stand in the order of the last evaluation, also when the first texts are gone', () => {
    const { container } = shown([
      written(0, 'b', 'Two'),
      written(5, 'c', 'One'),
      written(5, 'd', 'Two')
    ]);
    const prompts = [...container.querySelectorAll('.mnt-prompt')];
    expect(prompts.map(one => one.textContent)).toEqual(['One', 'Two']);
  });

  it('are text, whatever the model writes', () => {
    const evil = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
    const { container } = shown([written(3, evil, '<b>bold</b>')]);
    expect(container.querySelector('img, script, b')).toBeNull();
    expect(words(container)).toEqual([evil]);
    expect(container.querySelector('.mnt-prompt')!.textContent).toBe(
      '<b>bold</b>'
    );
  });

  it('that are empty are a dash', () => {
    expect(words(shown([written(3, '')]).container)).toEqual(['–']);
  });
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

  it.each([
    ['samples', { texts: [written(0)] }],
    ['an evaluation', { evaluation: { time_s: [1], step: [0], loss: [5.5] } }]
  ])('keeps what the server sent of %s before the first step', (_, sent) => {
    const controller = new LiveController(JOB_ID, new FakeModel() as any);
    controller.store.take(series({ ranks: [], job: {}, ...sent }));
    controller.takeBundle(bundle({ series: series({ stream: 'kernel' }) }));
    expect(controller.store.stream).toBe('s-1');
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
