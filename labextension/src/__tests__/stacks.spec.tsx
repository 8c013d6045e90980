import {
  cleanup,
  fireEvent,
  render,
  screen,
  waitFor
} from '@testing-library/react';
import * as React from 'react';

import type { ShownStacks } from '../schema';
import { FailureCard } from '../liveview/status/failure';
import { Jobs } from '../sidebar/jobs';
import { StacksView, stacksText } from '../stacks/view';
import { CommandIDs, RequestError } from '../tokens';
import { context } from './context';
import { job } from './samples';

const FOUND: ShownStacks = {
  ranks: [
    {
      node: 'wopr',
      rank: 0,
      said: 'rank 0 on wopr is in a barrier, in save (train.py:12)',
      text: 'File "train.py", line 12 in save',
      threads: 'Thread 7'
    },
    {
      node: 'muthur',
      rank: 1,
      said: 'rank 1 on muthur: busy',
      text: 'No stack'
    }
  ],
  problem: {
    kind: 'collective-mismatch',
    cause: 'they differ',
    fix: 'mend it'
  },
  silent: [{ kind: 'no-answer', cause: 'does not answer', node: 'hal' }]
};

let copied = '';
beforeEach(() => {
  copied = '';
  Object.assign(navigator, {
    clipboard: { writeText: async (text: string) => void (copied = text) }
  });
});
afterEach(cleanup);

/** A model whose ranks answer; what was asked is noted. */
function asked(answer: () => Promise<ShownStacks>) {
  const asks: unknown[] = [];
  const stacks = (jobId: string, rank?: number) => {
    asks.push([jobId, rank]);
    return answer();
  };
  const { model } = context({ api: { stacks }, job: () => job() }).props;
  return { model, asks };
}

describe('stacks', () => {
  it('say what each rank does first, and can be copied', async () => {
    const { model, asks } = asked(async () => FOUND);
    render(<StacksView model={model} jobId="j-1" />);
    screen.getByText('Asking the ranks…');
    await screen.findByText(FOUND.ranks[0].said);
    expect(asks).toEqual([['j-1', undefined]]);
    screen.getByText('they differ');
    screen.getByText('Fix: mend it');
    screen.getByText('hal: does not answer');
    screen.getByText(/^taken at/);
    fireEvent.click(screen.getByRole('button', { name: 'Copy' }));
    await waitFor(() => expect(copied).toContain('Thread 7'));
    expect(copied).toBe(stacksText(FOUND));
    expect(copied.indexOf('rank 0 on wopr')).toBeLessThan(
      copied.indexOf('File "train.py"')
    );
  });

  it('are taken again, and of one rank', async () => {
    const { model, asks } = asked(async () => FOUND);
    render(<StacksView model={model} jobId="j-1" rank={1} />);
    await screen.findByText(FOUND.ranks[1].said);
    fireEvent.click(screen.getByRole('button', { name: 'Take again' }));
    await waitFor(() => expect(asks.length).toBe(2));
    fireEvent.change(screen.getByLabelText('Rank'), {
      target: { value: 'undefined' }
    });
    await waitFor(() => expect(asks.length).toBe(3));
    expect(asks).toEqual([
      ['j-1', 1],
      ['j-1', 1],
      ['j-1', undefined]
    ]);
    await screen.findByText(/^taken at/);
  });

  it('that cannot be had say why', async () => {
    const refused = new RequestError(
      { cause: 'no node has job j-1', fix: 'look at jobs' },
      404
    );
    const { model } = asked(() => Promise.reject(refused));
    render(<StacksView model={model} jobId="j-1" />);
    const alert = await screen.findByRole('alert');
    expect(alert.textContent).toContain('no node has job j-1');
    expect(alert.textContent).toContain('Fix: look at jobs');
    cleanup();
    const nothing = 'j-1 has ended';
    const over = asked(async () => ({ ranks: [], nothing }));
    render(<StacksView model={over.model} jobId="j-1" />);
    await screen.findByText(nothing);
  });

  it('are offered for a job and for each rank, while it runs', async () => {
    const ranks = [{ rank: 0, state: 'running' }];
    const parts = [{ node: 'wopr', state: 'running', ranks } as any];
    const { props, calls } = context({ jobs: [job({ parts })] });
    props.commands.addCommand(CommandIDs.stacks, {
      execute: args => void calls.push([CommandIDs.stacks, args])
    });
    render(<Jobs {...props} />);
    fireEvent.contextMenu(
      screen.getByRole('button', { name: /Log of rank 0/ })
    );
    const ofRank = await screen.findByText('Show stacks');
    const menu = ofRank.closest('.lm-Menu')!;
    fireEvent.keyDown(menu, { keyCode: 40 }); // down
    fireEvent.keyDown(menu, { keyCode: 13 }); // Enter
    await waitFor(() => expect(calls.length).toBe(1));
    expect(calls).toEqual([
      [CommandIDs.stacks, { jobId: job().job_id, rank: 0 }]
    ]);
  });
});

describe('a failed job', () => {
  it('says how sure its cause is, and why', () => {
    const reasons = 'Certain: it ended 0.3 s before node1: rank 0';
    const failed = job({
      state: 'failed',
      problem: { kind: 'killed', cause: 'killed by SIGKILL', node: 'muthur' },
      reasons
    });
    render(<FailureCard job={failed} />);
    expect(screen.getByRole('alert').textContent).toContain(reasons);
    cleanup();
    render(<Jobs {...context({ jobs: [failed] }).props} />);
    screen.getByText(reasons);
    cleanup();
    render(<FailureCard job={job({ ...failed, reasons: '' })} />);
    expect(screen.queryByText(/Certain/)).toBeNull();
  });
});
