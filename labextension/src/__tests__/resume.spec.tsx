import {
  act,
  cleanup,
  fireEvent,
  render,
  screen
} from '@testing-library/react';
import { Signal } from '@lumino/signaling';
import * as React from 'react';

import { ResumeBar } from '../resume/bar';
import {
  checkpointState,
  deletionText,
  pageProblem,
  resumeText
} from '../resume/texts';
import type { ResumeOffer, RunCheckpoint } from '../schema';
import { CommandIDs } from '../tokens';
import { canGoOnFrom, jobActions } from '../words';
import { Jobs } from '../sidebar/jobs';
import { context } from './context';
import { job } from './samples';

afterEach(cleanup);

function checkpoint(step: number, fields = {}): RunCheckpoint {
  return {
    step,
    attempt: 1,
    size_bytes: 2 ** 21,
    saved_s: 1000,
    world_size: 2,
    nodes: { wopr: [0], muthur: [1] },
    ...fields
  };
}

const BROKEN = { nodes: { wopr: [0] }, missing: [1], missing_on: ['muthur'] };

function offer(
  checkpoints = [checkpoint(600), checkpoint(400)],
  fields: Partial<ResumeOffer> = {}
): ResumeOffer {
  return {
    job_id: 'j-1',
    run: 'j-1',
    newest_job: 'j-1',
    checkpoints: { run: 'j-1', checkpoints },
    step: 600,
    steps: 1000,
    reached: 664,
    ...fields
  };
}

const ended = job({ state: 'failed', numbers: { step: 664, step_s: 2 } });

async function shown(
  given: ResumeOffer | null,
  status: Record<string, unknown> = {}
) {
  const calls: [string, any][] = [];
  const commands = {
    execute: async (id: string, args: any) => {
      calls.push([id, args]);
      return offer([checkpoint(600)]);
    }
  } as any;
  const api = {
    resumeOffer: () => (given ? Promise.resolve(given) : Promise.reject('no'))
  };
  const changed = new Signal<any, void>({});
  const model = { jobs: [], nodes: [], api, status, changed } as any;
  await act(async () => {
    render(<ResumeBar job={ended} model={model} commands={commands} />);
  });
  return { calls, model };
}

const button = (name: RegExp | string) => screen.getByRole('button', { name });
const names = () => screen.queryAllByRole('button').map(one => one.textContent);

describe('the resume bar', () => {
  it('offers the newest step first, confirmed by what was seen', async () => {
    const { calls } = await shown(offer());
    expect(button('Resume from step 600').className).toContain('pri');
    expect(button('Start over…').className).not.toContain('pri');
    fireEvent.click(button('Resume from step 600'));
    expect(calls).toEqual([
      [CommandIDs.resume, { jobId: ended.job_id, expectedStep: 600 }]
    ]);
  });

  it('without a whole checkpoint starts over, and still lists the rest', async () => {
    const { calls } = await shown(
      offer([checkpoint(600, BROKEN)], { obstacle: 'not-whole' })
    );
    expect(screen.queryByRole('region')).toBeNull();
    expect(button('Start over…').className).toContain('pri');
    fireEvent.click(button('1 checkpoint'));
    expect(names()).not.toContain('New run from here');
    fireEvent.click(button('Start over…'));
    expect(calls).toEqual([[CommandIDs.launchAgain, { jobId: ended.job_id }]]);
  });

  it('of a run whose newest is not whole has older ones', async () => {
    const older = [checkpoint(600, BROKEN), checkpoint(400)];
    const { calls } = await shown(offer(older, { obstacle: 'not-whole' }));
    expect(names()).toEqual(['Start over…', '2 checkpoints']);
    fireEvent.click(button('2 checkpoints'));
    fireEvent.click(button('New run from here'));
    expect(calls).toEqual([
      [CommandIDs.resume, { jobId: ended.job_id, begin: 400 }]
    ]);
  });

  it('pins, and shows the list as it is then', async () => {
    const { calls } = await shown(offer());
    fireEvent.click(button('2 checkpoints'));
    await act(async () => {
      fireEvent.click(screen.getAllByRole('button', { name: 'Pin' })[1]);
    });
    expect(calls).toEqual([
      [
        CommandIDs.changeCheckpoint,
        { jobId: ended.job_id, step: 400, action: 'pin' }
      ]
    ]);
    expect(names()).toContain('1 checkpoint');
  });

  it('deletes no pinned one', async () => {
    const { calls } = await shown(
      offer([checkpoint(600, { is_pinned: true })])
    );
    fireEvent.click(button('1 checkpoint'));
    fireEvent.click(button('Delete…'));
    expect(calls).toEqual([]);
    fireEvent.click(button('Pinned'));
    expect(calls[0][1].action).toBe('unpin');
  });

  it('of a finished run asks for more steps', async () => {
    const { calls } = await shown(offer(undefined, { obstacle: 'finished' }));
    fireEvent.click(button('Make more steps…'));
    expect(calls[0][1]).toEqual({ jobId: ended.job_id, more: true });
  });

  it('attaches to a job that goes on already', async () => {
    const running = { obstacle: 'running', running_job: 'j-2' } as const;
    const { calls } = await shown(offer(undefined, running));
    fireEvent.click(button('Attach to j-2'));
    expect(calls).toEqual([[CommandIDs.attach, { jobId: 'j-2' }]]);
    fireEvent.click(button('2 checkpoints'));
    expect(names()).not.toContain('New run from here');
  });

  it('asks again when another job of the cluster starts', async () => {
    const { model } = await shown(offer());
    const running = { obstacle: 'running', running_job: 'j-2' } as const;
    model.api.resumeOffer = async () => offer(undefined, running);
    model.jobs = [job({ job_id: 'j-2', submitted_s: 1e9 })];
    await act(async () => model.changed.emit());
    expect(names()).toContain('Attach to j-2');
  });

  it('is not for people who may only watch', async () => {
    await shown(offer(), { is_read_only: true });
    expect(names()).toEqual([]);
  });

  it('starts over if the nodes could not be asked', async () => {
    await shown(null);
    expect(names()).toEqual(['Start over…']);
  });
});

it('what is repeated has its number and its time', () => {
  const text = resumeText(offer(), ended);
  expect(text).toMatch(/^64 .*2.min 08.s/);
  const changed = offer(undefined, { changes: ['train.steps 1 → 2'] });
  expect(resumeText(changed, ended)).toContain('train.steps 1 → 2');
  const kinds = (['equal', 'rounding', 'other', 'by-script'] as const).map(
    losses => resumeText(offer(undefined, { losses }), ended)
  );
  expect(new Set(kinds).size).toBe(4);
});

it('a deletion says what is left', () => {
  const two = offer();
  const last = offer([checkpoint(600)]);
  const text = (given: ResumeOffer) =>
    deletionText(given, given.checkpoints.checkpoints![0]);
  expect(text(two)).toContain('400');
  expect(text(two)).toContain('wopr, muthur');
  expect(text(last)).not.toBe(text(two));
});

it('the best evaluation loss is named next to what else is known', () => {
  const best = checkpoint(400, { is_best: true, is_pinned: true });
  const given = offer([checkpoint(600), best]);
  const states = given.checkpoints.checkpoints!.map(one =>
    checkpointState(given, one)
  );
  expect(states).toEqual([
    'whole, newest',
    'whole, best evaluation loss, pinned'
  ]);
});

it('no fix in the page is a command of the terminal', () => {
  for (const kind of ['still-running', 'no-checkpoint'] as const) {
    const told = pageProblem({ kind, cause: 'x', fix: 'run: mntrain resume' });
    expect(told.cause).toBe('x');
    expect(told.fix).not.toContain('mntrain');
  }
});

describe('an ended job of the sidebar', () => {
  const part = {
    node: 'wopr',
    node_id: 'n',
    state: 'failed',
    ranks: []
  } as any;
  const saved = job({
    state: 'failed',
    parts: [
      { ...part, resumed_step: 300 },
      { ...part, node: 'muthur', saved_step: 400 }
    ]
  });

  it('can be resumed once it has saved', () => {
    expect(canGoOnFrom(saved)).toBe(400);
    expect(canGoOnFrom(job())).toBeNull();
    const commands = (one: typeof saved) =>
      jobActions(one).map(({ command }) => command);
    expect(commands(saved)).toEqual([
      CommandIDs.resume,
      CommandIDs.launchAgain
    ]);
    expect(commands(job({ state: 'failed' }))).toEqual([
      CommandIDs.launchAgain
    ]);
  });

  it('has no such buttons for people who may only watch', () => {
    const watcher = { jobs: [saved], status: { is_read_only: true } };
    render(<Jobs {...context(watcher).props} />);
    expect(screen.queryByRole('button', { name: 'Resume…' })).toBeNull();
    expect(screen.queryByRole('button', { name: 'Start over…' })).toBeNull();
    cleanup();
    render(<Jobs {...context({ jobs: [saved] }).props} />);
    expect(screen.getByRole('button', { name: 'Resume…' })).toBeTruthy();
  });
});
