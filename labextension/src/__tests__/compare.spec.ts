import { comparedCharts } from '../compare/charts';
import { isOdd } from '../compare/differences';
import { COLUMNS, rowsOf } from '../compare/rows';
import { placesOf, valuesAt } from '../compare/tables';
import { axisKinds, axisOf, joined, sharedAxis } from '../compare/run_series';
import { runWords } from '../liveview/axis/ticks';
import { csvOf } from '../liveview/export/csv';
import { runsOf } from '../runs/run';
import type { ShownSetting } from '../schema';
import { job, stored, THEME } from './samples';

/** A job that made these steps, one a second from `at` on. */
function made(at: number, steps: number[], loss: (step: number) => number) {
  return stored({
    job: {
      time_s: steps.map((_, i) => at + i),
      step: steps,
      tokens: steps.map(step => 10 * step),
      tokens_per_s: steps.map(() => 90),
      loss: steps.map(loss)
    },
    evaluation: { time_s: [at + 1], step: [steps[1]], loss: [loss(steps[1])] }
  });
}

/** Steps 1 to 4, and after a long pause from step 3 on again. */
const RESUMED = joined([
  made(1000, [1, 2, 3, 4], () => 9),
  made(5000, [3, 4, 5], step => step)
]);

const PLAIN = joined([made(100, [1, 2], step => 10 - step)]);

describe('the rows of a run', () => {
  const { columns, bestEvaluation } = RESUMED;

  it('have each step once, as the last job made it', () => {
    expect([...columns.step]).toEqual([1, 2, 3, 4, 5]);
    expect([...columns.loss]).toEqual([9, 9, 3, 4, 5]);
    expect(bestEvaluation).toBe(4);
  });

  it('have no pauses in the time since the start', () => {
    expect([...columns.elapsed]).toEqual([0, 1, 2, 3, 4]);
    expect([...columns.time_s]).toEqual([1000, 1001, 5000, 5001, 5002]);
  });

  it('place an event of either job on each axis', () => {
    expect(axisOf(RESUMED, 'step').ofTime(5001)).toBe(4);
    expect(axisOf(RESUMED, 'elapsed').ofTime(5001)).toBe(3);
    expect(axisOf(RESUMED, 'tokens').ofTime(1001)).toBe(20);
  });

  it('of no job that has made a step are none', () => {
    expect(joined([]).columns.step).toHaveLength(0);
    expect(joined([stored({ job: {} })]).bestEvaluation).toBeNaN();
  });
});

describe('compared runs', () => {
  const runs = [
    { letter: 'A', place: 0, series: RESUMED },
    { letter: 'C', place: 2, series: PLAIN }
  ];

  it('share an axis that has the rows of all', () => {
    expect([...sharedAxis([PLAIN, RESUMED], 'step').xs]).toEqual([
      1, 2, 3, 4, 5
    ]);
    expect(sharedAxis([PLAIN, RESUMED], 'tokens').length).toBe(5);
    expect(axisKinds([PLAIN])).toEqual(['step', 'tokens', 'elapsed']);
    const untold = joined([stored()]);
    expect(axisKinds([PLAIN, untold])).toEqual(['step', 'elapsed']);
  });

  it('keep letter, color and dash when another is hidden', () => {
    const [loss, throughput] = comparedCharts(runs, 'step', THEME);
    expect(loss.lines.map(line => [line.label, line.color])).toEqual([
      ['A', THEME.ranks[0]],
      ['C', THEME.ranks[2]]
    ]);
    const [alone] = comparedCharts(runs.slice(1), 'elapsed', THEME);
    expect(alone.lines[0]).toMatchObject({
      color: THEME.ranks[2],
      dash: loss.lines[1].dash
    });
    expect([...alone.lines[0].x]).toEqual([0, 1]);
    expect(throughput.lines).toHaveLength(2);
    expect(comparedCharts([], 'step', THEME)[0].note).toBeTruthy();
  });

  it('have losses that are not finite where they were', () => {
    const series = joined([
      stored({
        job: { time_s: [1, 2], step: [1, 2], loss: [3, 'NaN'] as any }
      })
    ]);
    const broken = [{ letter: 'B', place: 1, series }];
    const [loss] = comparedCharts(broken, 'step', THEME);
    expect(loss.breaks).toEqual([{ time: 2, line: 'B', label: 'NaN' }]);
  });

  it('are tables of some places, without values where a run has none', () => {
    const axis = sharedAxis([RESUMED, PLAIN], 'step');
    expect(placesOf(axis.xs, [1, 5], 3)).toEqual([1, 3, 5]);
    expect(placesOf(axis.xs, [2, 3], 3)).toEqual([2, 3]);
    expect(placesOf(axis.xs, [1, 5], 3, [4, 9])).toEqual([1, 3, 4, 5]);
    expect(placesOf(new Float64Array(), [0, 1], 3)).toEqual([]);
    const [loss] = comparedCharts(runs, 'step', THEME);
    const [long, short] = loss.lines.map(line =>
      valuesAt(loss, line, [0, 1, 2, 5])
    );
    expect(long).toEqual([undefined, 9, 9, 5]);
    expect(short).toEqual([undefined, 9, 8, undefined]);
    const broken = { breaks: [{ time: 2, line: 'C', label: 'NaN' }] };
    expect(valuesAt(broken, loss.lines[1], [1, 2])).toEqual([9, 8]);
    const line = { ...loss.lines[1], y: Float64Array.of(9, NaN) };
    expect(valuesAt(broken, line, [1, 2])).toEqual([9, 'NaN']);
  });

  it('are told by place, not by clock', () => {
    const at = { x: 3700, time: 0, step: 0, tokens: NaN };
    expect(runWords('step').sample(at)).toBe('step 3,700');
    expect(runWords('elapsed').sample(at)).toContain('1');
    expect(runWords('step').range({ ...at, x: 1 }, at)).toBe(
      'step 1 to step 3,700'
    );
  });

  it('are a table with a row per step, names without formulas', () => {
    const [run] = runsOf([job({ name: '=1+1' })]);
    const { text, rows } = csvOf(COLUMNS, rowsOf(run, PLAIN));
    expect(rows).toBe(2);
    expect(text.split('\n')[1]).toBe(`${run.id},"'=1+1",1,10,0,100,9,90`);
  });
});

describe('a setting', () => {
  const value = (text: string): ShownSetting => ({
    name: 'train.lr',
    value: text,
    origin: 'recipe'
  });

  it('is the odd one if all others are alike, and of two none is', () => {
    const three = [value('1'), value('2'), value('1')];
    expect(three.map((_, i) => isOdd(three, i))).toEqual([false, true, false]);
    const none = [value('1'), null, value('1')];
    expect(isOdd(none, 1)).toBe(true);
    expect(isOdd([value('1'), value('2')], 1)).toBe(false);
    expect(isOdd([value('1'), value('2'), value('3')], 1)).toBe(false);
  });
});
