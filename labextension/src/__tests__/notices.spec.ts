import { failuresText, noticesOf, seenOf } from '../notices/notice';
import { TitleMark } from '../notices/title';
import type { JobEntry } from '../schema';
import { job } from './samples';

const cause = { kind: 'out-of-memory', cause: 'CUDA out of memory' } as const;
const problem = { ...cause, node: 'muthur', rank: 1 } as JobEntry['problem'];

function news(before: JobEntry[], now: JobEntry[]) {
  const seen = new Map(before.map(one => [one.job_id, seenOf(one)]));
  return noticesOf(seen, now).map(({ kind, isBad }) => [kind, isBad]);
}

it('an end is told once, with its cause', () => {
  const failed = job({ state: 'failed', problem });
  expect(news([job()], [failed])).toEqual([['failed', true]]);
  expect(news([failed], [failed])).toEqual([]);
  const [notice] = noticesOf(new Map([[failed.job_id, seenOf(job())]]), [
    failed
  ]);
  expect(notice.text).toContain('muthur');
  expect(notice.text).toContain('CUDA out of memory');
});

it('success and a stop are good news, a stall is not', () => {
  expect(news([job()], [job({ state: 'succeeded' })])).toEqual([
    ['succeeded', false]
  ]);
  expect(news([job()], [job({ state: 'canceled' })])).toEqual([
    ['canceled', false]
  ]);
  const stalled = job({ stall: problem, hurt: 'stalled' });
  expect(news([job()], [stalled])).toEqual([['stalled', true]]);
  expect(news([stalled], [stalled])).toEqual([]);
});

it('a stall that ended with the job is told as its end only', () => {
  const ended = job({ state: 'failed', stall: problem, hurt: 'failed' });
  expect(news([job()], [ended])).toEqual([['failed', true]]);
  expect(news([job({ stall: problem, hurt: 'stalled' })], [ended])).toEqual([
    ['failed', true]
  ]);
});

it('failures are told as one, which counts and names the newest', () => {
  const failed = ['one', 'two', 'three'].map(name => ({
    jobId: name,
    kind: 'failed' as const,
    text: `${name} failed`,
    isBad: true
  }));
  expect(failuresText(failed.slice(0, 1))).toBe('one failed');
  expect(failuresText(failed)).toBe('3 jobs failed. The newest: three failed');
});

it('what is seen for the first time is no news', () => {
  expect(news([], [job({ state: 'failed', problem })])).toEqual([]);
});

it('an ended job that is not known any more and comes again is no news', () => {
  expect(news([job({ state: 'succeeded' })], [])).toEqual([]);
});

describe('the title', () => {
  let hidden = false;
  let title: TitleMark;
  beforeEach(() => {
    Object.defineProperty(document, 'hidden', {
      configurable: true,
      get: () => hidden
    });
    document.title = 'quickstart - JupyterLab';
    title = new TitleMark(document);
  });
  afterEach(() => title.dispose());

  function look(isHidden: boolean) {
    hidden = isHidden;
    document.dispatchEvent(new Event('visibilitychange'));
  }

  it('is marked while nobody looks, bad news first', () => {
    look(true);
    title.add(false);
    expect(document.title).toBe('✓ quickstart - JupyterLab');
    title.add(true);
    title.add(false);
    expect(document.title).toBe('✕ quickstart - JupyterLab');
    look(false);
    expect(document.title).toBe('quickstart - JupyterLab');
  });

  it('is left alone while somebody looks, and where JupyterLab has set another', () => {
    look(false);
    title.add(true);
    expect(document.title).toBe('quickstart - JupyterLab');
    look(true);
    title.add(true);
    document.title = 'other - JupyterLab';
    look(false);
    expect(document.title).toBe('other - JupyterLab');
  });
});
