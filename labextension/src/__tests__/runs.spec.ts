import { csvOf } from '../liveview/export/csv';
import { COLUMNS, runRow } from '../runs/csv';
import { actOf } from '../runs/keys';
import {
  filtersOf,
  FIRST_QUERY,
  leftRuns,
  narrowings,
  shownRuns,
  sortedBy,
  WIDEST
} from '../runs/query';
import { removalText } from '../runs/removal';
import { inView, rowsOf, scrolledTo } from '../runs/rows';
import { durationOf, isResumable, runsOf, stepOf } from '../runs/run';
import type { JobEntry } from '../schema';
import { job } from './samples';

const NOW = 10_000;

function ended(
  id: string,
  at: number,
  fields: Partial<JobEntry> = {},
  part: Record<string, unknown> = {}
): JobEntry {
  return job({
    job_id: id,
    state: 'succeeded',
    submitted_s: at,
    parts: [
      {
        node_id: 'n',
        node: 'wopr',
        state: 'succeeded',
        started_s: at + 1,
        ended_s: at + 11,
        ...part
      }
    ],
    ...fields
  });
}

/** A run of two jobs, one that failed and could go on, and one that runs. */
const ENTRIES = [
  ended('j-1', 100, { name: 'llama', numbers: { step: 20, loss: 3 } }),
  ended('j-2', 200, { name: 'llama', run: 'j-1', numbers: { step: 30 } }),
  ended(
    'j-3',
    300,
    { name: 'qwen', state: 'failed', note: 'too hot', numbers: { step: null } },
    { saved_step: 7 }
  ),
  job({ job_id: 'j-4', name: 'alpaca', submitted_s: 400 })
];

const ids = (runs: ReadonlyArray<{ id: string }>) => runs.map(run => run.id);

describe('runs', () => {
  it('are chains of jobs, called and placed by the newest', () => {
    const runs = runsOf(ENTRIES);
    expect(ids(runs)).toEqual(['j-4', 'j-3', 'j-1']);
    expect(runs[2].jobs.map(one => one.job_id)).toEqual(['j-2', 'j-1']);
    expect(runs[2].newest.job_id).toBe('j-2');
  });

  it('last as long as all of their jobs, and are at the newest step', () => {
    const [running, failed, chain] = runsOf(ENTRIES);
    expect(durationOf(chain.jobs, NOW)).toBe(20);
    expect(stepOf(chain.jobs)).toBe(30);
    expect(stepOf(failed.jobs)).toBe(7);
    expect(durationOf(running.jobs, NOW)).toBe(NOW - 400);
    const silent = runsOf([ended('j-9', 1, {}, { ended_s: null })]);
    expect(durationOf(silent[0].jobs, NOW)).toBeNull();
  });

  it('can go on if they saved and nothing of them runs', () => {
    expect(runsOf(ENTRIES).map(isResumable)).toEqual([false, true, false]);
  });

  it('are found by any word of any of their jobs', () => {
    const runs = runsOf(ENTRIES);
    const found = (search: string) =>
      ids(leftRuns(runs, { ...WIDEST, search }, NOW));
    expect(found(' HOT ')).toEqual(['j-3']);
    expect(found('J-2')).toEqual(['j-1']);
    expect(found('recipe.toml')).toHaveLength(3);
    expect(found('nowhere')).toEqual([]);
  });

  it('are narrowed by node, by what ran there, and by age', () => {
    const entry = ['tune.py', '--fast'];
    const runs = runsOf([
      ...ENTRIES,
      ended('j-5', 50, { entry }, { node: 'hal' })
    ]);
    const left = (fields: object) =>
      ids(leftRuns(runs, { ...WIDEST, ...fields }, NOW));
    expect(left({ node: 'muthur' })).toEqual(['j-4']);
    expect(left({ node: 'wopr' })).toEqual(['j-4', 'j-3', 'j-1']);
    expect(left({ program: 'tune.py' })).toEqual(['j-5']);
    expect(left({ program: 'jupyter_mntrain.train', node: 'hal' })).toEqual([]);
    expect(left({ age: NOW - 300 })).toEqual(['j-4', 'j-3']);
    const both = { ...WIDEST, search: 'llama', node: 'hal' };
    expect(narrowings(runs, both, NOW)).toEqual([
      { name: 'search', excluded: 2 },
      { name: 'node', excluded: 3 }
    ]);
  });

  it('are a table with a row each, texts without formulas', () => {
    const note = '=1+1';
    const [run] = runsOf([
      ended('j-5', 50, { note, numbers: { step: 7, loss: 'NaN' } as any })
    ]);
    const { text } = csvOf(COLUMNS, [runRow(run, NOW)]);
    expect(text.split('\n')[1]).toBe(
      `j-5,j-5,"llama",succeeded,51,10,"wopr 0","jupyter_mntrain.train",1,7,,,,NaN,,"'=1+1"`
    );
  });

  it('are offered by the states that there are', () => {
    expect(filtersOf(runsOf(ENTRIES))).toEqual([
      ['running', 1],
      ['succeeded', 1],
      ['failed', 1],
      ['resumable', 1]
    ]);
  });

  it('are sorted by a column, unknown values last either way', () => {
    const by = (column: any, isDown: boolean) =>
      ids(
        shownRuns(
          runsOf(ENTRIES),
          { ...FIRST_QUERY, sort: { column, isDown } },
          NOW
        )
      );
    expect(by('name', false)).toEqual(['j-4', 'j-1', 'j-3']);
    expect(by('step', true)).toEqual(['j-1', 'j-3', 'j-4']);
    expect(by('loss', true)[0]).not.toBe('j-3');
    const sort = sortedBy(FIRST_QUERY.sort, 'started');
    expect(sort).toEqual({ column: 'started', isDown: false });
    expect(sortedBy(sort, 'name')).toEqual({ column: 'name', isDown: false });
    expect(sortedBy(sort, 'step').isDown).toBe(true);
  });
});

describe('rows', () => {
  it('of an open run are followed by its jobs', () => {
    const runs = runsOf(ENTRIES);
    expect(rowsOf(runs, new Set())).toHaveLength(3);
    const rows = rowsOf(runs, new Set(['j-1', 'j-4']));
    expect(rows.map(row => row.key)).toEqual([
      'j-4',
      'j-3',
      'j-1',
      'j-1/j-2',
      'j-1/j-1'
    ]);
    expect(rows.map(row => row.isLast ?? null)).toEqual([
      ...[null, null, null],
      ...[false, true]
    ]);
  });

  it('of a long list are in the page where they can be seen', () => {
    expect(inView(1000, 0, 290)).toEqual([0, 20]);
    expect(inView(1000, 2900, 290)).toEqual([90, 120]);
    expect(inView(1000, 1e6, 290)).toEqual([1000, 1000]);
    expect(scrolledTo(50, 0, 290)).toBe(51 * 29 - 290);
    expect(scrolledTo(1, 100, 290)).toBe(29);
    expect(scrolledTo(5, 100, 290)).toBe(100);
  });
});

describe('keys', () => {
  const press = (key: string, at = 1, fields = {}) =>
    actOf(
      {
        key,
        shiftKey: false,
        ctrlKey: false,
        metaKey: false,
        altKey: false,
        ...fields
      },
      at,
      3
    );

  it('move within the rows, and tick with Shift', () => {
    expect(press('ArrowDown')).toEqual({ kind: 'move', to: 2, ticks: false });
    expect(press('ArrowDown', 2)).toMatchObject({ to: 2 });
    expect(press('End', 0, { shiftKey: true })).toEqual({
      kind: 'move',
      to: 2,
      ticks: true
    });
  });

  it.each([
    [' ', 'tick'],
    ['Enter', 'attach'],
    ['F2', 'rename'],
    ['n', 'note'],
    ['R', 'resume'],
    ['Delete', 'remove'],
    ['/', 'search'],
    ['ArrowRight', 'open'],
    ['ArrowLeft', 'close']
  ])('%p does %s', (key, kind) => {
    expect(press(key)).toEqual({ kind });
  });

  it('of the browser and of others are left alone', () => {
    expect(press('n', 0, { ctrlKey: true })).toBeNull();
    expect(press('x')).toBeNull();
    expect(press('F10', 0, { shiftKey: true })).toBeNull();
  });
});

describe('before a deletion', () => {
  const part = {
    node: 'wopr',
    directory: '/x',
    size_bytes: 2 ** 20,
    is_last_of_run: true
  };
  const plan = (fields = {}) => ({
    job_id: 'j-3',
    run: 'j-3',
    nodes: [{ ...part, ...fields }]
  });
  const [, failed, chain] = runsOf(ENTRIES);

  it('the only checkpoints are named, and nothing of them where there are none', () => {
    const saved = plan({ checkpoints: '/c', checkpoints_bytes: 2 ** 31 });
    const said = removalText(failed.jobs, [saved], true);
    expect(said.hasCheckpoints).toBe(true);
    expect(said.lines.join(' ')).toContain('only checkpoints (2.0');
    const bare = removalText(chain.jobs, [plan(), plan()], true);
    expect(bare.hasCheckpoints).toBe(false);
    expect(bare.lines).toHaveLength(1);
    expect(bare.lines[0]).toContain('2 jobs');
  });

  it('of one job of a run, the others are said to stay; so is who is silent', () => {
    const silent = { ...plan(), silent: ['muthur'] };
    const { lines } = removalText([chain.jobs[0]], [silent], false);
    expect(lines[1]).toContain('stay');
    expect(lines[2]).toContain('muthur');
  });
});
