import { Detail, SETTLED_MS } from '../series/detail';
import { SeriesStore } from '../series/store';
import { rank, series } from './samples';

/** A job of 1000 steps, of which the page holds every tenth. */
function thinned(): SeriesStore {
  const step = Array.from({ length: 100 }, (_, row) => 10 * (row + 1));
  const store = new SeriesStore();
  store.take(rows(step));
  return store;
}

function rows(step: number[]) {
  const time_s = step.map(one => 1000 + one);
  return series({
    ranks: [{ ...rank(0, 0), time_s, step }],
    job: { time_s, step, loss: step.map(() => 2) }
  });
}

function single(from: number, to: number) {
  return rows(Array.from({ length: to - from + 1 }, (_, row) => from + row));
}

describe('the detail of a long job', () => {
  let asked: Array<[number, number]>;
  let changes: number;
  let detail: Detail;

  beforeEach(() => {
    jest.useFakeTimers();
    [asked, changes] = [[], 0];
    detail = new Detail(
      async (from, to) => {
        asked.push([from, to]);
        return single(from, to);
      },
      () => (changes += 1)
    );
  });

  afterEach(() => {
    detail.dispose();
    jest.useRealTimers();
  });

  it('has every step of what is zoomed to, once the nodes have told them', async () => {
    const whole = thinned();
    expect(detail.look([200.4, 240], whole)).toBeNull();
    await jest.advanceTimersByTimeAsync(SETTLED_MS);
    expect(asked).toEqual([[200, 240]]);
    expect(changes).toBe(1);
    const steps = detail.look([200.4, 240], whole)!.job.column('step');
    expect([...steps.slice(0, 3)]).toEqual([200, 201, 202]);
    expect(steps).toHaveLength(41);
    detail.look([210, 220], whole);
    await jest.advanceTimersByTimeAsync(SETTLED_MS);
    expect(asked).toHaveLength(1);
  });

  it('asks for the last range only, while it is dragged', async () => {
    const whole = thinned();
    for (const from of [100, 110, 120]) {
      detail.look([from, from + 50], whole);
      await jest.advanceTimersByTimeAsync(SETTLED_MS / 2);
    }
    await jest.advanceTimersByTimeAsync(SETTLED_MS);
    expect(asked).toEqual([[120, 170]]);
  });

  it('asks nothing of steps that the page holds one by one', async () => {
    const whole = new SeriesStore();
    whole.take(single(1, 50));
    expect(detail.look([10, 20], whole)).toBeNull();
    await jest.advanceTimersByTimeAsync(SETTLED_MS);
    expect(asked).toEqual([]);
  });

  it('shows the whole job’s rows while no node answers', async () => {
    const silent = new Detail(
      () => Promise.reject(new Error('silent')),
      () => undefined
    );
    const whole = thinned();
    silent.look([200, 240], whole);
    await jest.advanceTimersByTimeAsync(SETTLED_MS);
    expect(silent.look([200, 240], whole)).toBeNull();
  });
});
