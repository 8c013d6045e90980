import { Axis, hasTokens } from '../liveview/axis/axis';
import { charts } from '../liveview/charts/charts';
import {
  linkSummary,
  job,
  rankSummary,
  stored,
  summary,
  THEME
} from './samples';

const JOB = {
  time_s: [1001, 1002, 1004, 1008],
  step: [11, 12, 13, 14],
  tokens: [1100, 1200, 1300, 1400],
  tokens_per_s: [90, 91, 92, 93],
  loss: [4, 3, 2, 1]
};

function placed(kind: 'step' | 'tokens' | 'time') {
  const nodes = ['wopr', 'muthur'];
  const store = stored({
    job: JOB,
    evaluation: { time_s: [1000, 1004], step: [0, 13], loss: [9, 8] },
    links: nodes.map(node => ({
      node,
      time_s: [900, 1001, 1003, 1006, 1100],
      sent: [1, 2, 3, 4, 5],
      own_sent: [1, 1, 1, 1, 1]
    })),
    summary: summary([rankSummary(0), rankSummary(1)], {
      links: nodes.flatMap(node => [
        linkSummary(node, 'sent'),
        linkSummary(node, 'received')
      ]),
      marks: [{ time_s: 1006, label: 'slow', end_s: 9999 }]
    })
  });
  const axis = Axis.of(store, kind);
  const all = charts({
    store,
    job: job({
      placements: nodes.map(node => ({ node }) as any)
    }),
    theme: THEME,
    choice: { rank: null, node: null }
  }).map(chart => axis.place(chart));
  const line = (key: string) =>
    all.flatMap(chart => chart.lines).find(one => one.key === key)!;
  return { axis, line, all };
}

describe('an axis of steps', () => {
  it('has the steps of the job, and of evaluations before the first', () => {
    const { axis, line } = placed('step');
    expect([...axis.xs]).toEqual(JOB.step);
    expect([...line('loss').x]).toEqual(JOB.step);
    expect([...line('evaluation').x]).toEqual([0, 13]);
  });

  it('has traffic between steps, none before or after them', () => {
    const { line } = placed('step');
    expect([...line('all-0').x]).toEqual([11, 12.5, 13.5]);
    expect([...line('all-0').y]).toEqual([2, 3, 4]);
  });

  it('has warnings until the last step, if they go on', () => {
    const [mark] = placed('step').all[0].marks!;
    expect(mark).toMatchObject({ time_s: 13.5, end_s: 14 });
  });

  it('tells the time and the tokens of a sample', () => {
    const { axis } = placed('step');
    expect(axis.sample(2)).toEqual({
      x: 13,
      time: 1004,
      step: 13,
      tokens: 1300
    });
    expect(axis.timeOf(13.5)).toBe(1006);
  });
});

describe('an axis of tokens', () => {
  it('begins at 0 with an evaluation before the first step', () => {
    const { line } = placed('tokens');
    expect([...line('loss').x]).toEqual(JOB.tokens);
    expect([...line('evaluation').x]).toEqual([0, 1300]);
    expect([...line('own-1').x]).toEqual([1100, 1250, 1350]);
  });

  it('is one of steps while tokens are not known', () => {
    const store = stored();
    expect(hasTokens(store)).toBe(false);
    expect(Axis.of(store, 'tokens').kind).toBe('step');
  });
});

describe('an axis of time', () => {
  it('leaves charts as they are', () => {
    const { axis, line } = placed('time');
    expect([...line('all-0').x]).toHaveLength(5);
    expect([...axis.xs]).toEqual(JOB.time_s);
  });

  it('is of a rank before all ranks have made a step', () => {
    const axis = Axis.of(stored({ job: {} }), 'time');
    expect([...axis.xs]).toEqual([1001, 1002, 1003, 1004]);
    expect(axis.sample(0).tokens).toBeNaN();
  });
});
