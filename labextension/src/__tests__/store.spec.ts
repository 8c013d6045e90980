import { MOST_TEXTS } from '../schema';
import { SeriesStore } from '../series/store';
import { rank, series, written } from './samples';

describe('the rows of a job', () => {
  it('are replaced by a whole series and go on with what is new', () => {
    const store = new SeriesStore();
    store.take(series());
    store.take(
      series({ since: 8, seq: 10, ranks: [rank(0, 2, 5)], job: {} as any })
    );
    expect(store.seq).toBe(10);
    expect([...store.ranks.get(0)!.table.column('step')]).toEqual([
      1, 2, 3, 4, 5, 6
    ]);
    store.take(series({ seq: 3, ranks: [rank(0, 1)] }));
    expect(store.ranks.get(0)!.table.length).toBe(1);
    expect(store.ranks.has(1)).toBe(false);
  });

  it('are never taken twice, nor with a gap', () => {
    const store = new SeriesStore();
    store.take(series());
    store.take(series({ since: 4, seq: 8 }));
    store.take(series({ since: 9, seq: 12 }));
    expect(store.seq).toBe(8);
    expect(store.ranks.get(0)!.table.length).toBe(4);
  });

  it('of another numbering replace them', () => {
    const store = new SeriesStore();
    store.take(series());
    store.take(series({ stream: 's-2', since: 8, seq: 9 }));
    expect(store.stream).toBe('s-2');
    expect(store.ranks.get(0)!.table.length).toBe(4);
  });

  it('hold NaN where nothing is said', () => {
    const store = new SeriesStore();
    store.take(series());
    expect([...store.job.column('loss')]).toEqual([4, 3, NaN, 2]);
    expect([...store.ranks.get(0)!.table.column('mfu')]).toEqual([
      NaN,
      NaN,
      NaN,
      NaN
    ]);
  });
});

describe('the evaluations of a job', () => {
  it('go on and are replaced like all others', () => {
    const store = new SeriesStore();
    store.take(
      series({ evaluation: { time_s: [1000], step: [0], loss: [5] } })
    );
    store.take(
      series({
        since: 8,
        seq: 9,
        ranks: [],
        job: {},
        evaluation: { time_s: [1004], step: [4], loss: [3] }
      })
    );
    expect([...store.evaluation.column('loss')]).toEqual([5, 3]);
    store.take(series());
    expect(store.evaluation.length).toBe(0);
  });

  it('and its data stay until another attempt', () => {
    const store = new SeriesStore();
    store.take(series({ data: { count: 3 } }));
    store.take(series({ since: 8, seq: 9 }));
    expect(store.data?.count).toBe(3);
    store.take(series({ stream: 's-2' }));
    expect(store.data).toBeNull();
  });

  it('and its texts go on, are bounded, and are replaced', () => {
    const store = new SeriesStore();
    const steps = () => store.texts.map(one => one.step);
    const more = (seq: number, step: number) =>
      store.take(
        series({
          since: seq - 1,
          seq,
          ranks: [],
          job: {},
          texts: [written(step)]
        })
      );
    store.take(series({ texts: [written(0)] }));
    more(9, 4);
    expect(steps()).toEqual([0, 4]);
    for (let i = 1; i <= MOST_TEXTS; i++) {
      more(9 + i, 4 + i);
    }
    expect(store.texts).toHaveLength(MOST_TEXTS);
    expect([steps()[0], steps()[MOST_TEXTS - 1]]).toEqual([5, 4 + MOST_TEXTS]);
    store.take(series());
    expect(store.texts).toHaveLength(0);
  });
});
