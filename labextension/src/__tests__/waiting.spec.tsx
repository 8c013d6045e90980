import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';

import type { WaitingLaunch } from '../schema';
import { WaitingLaunches } from '../sidebar/waiting';
import { EMPTY, reduce } from '../state';
import { CommandIDs } from '../tokens';
import { context } from './context';

afterEach(cleanup);

const LAUNCH: WaitingLaunch = {
  cluster: 'slurm-3f9a2c',
  name: 'finetune',
  source: 'SLURM',
  allocation: '7',
  nodes: 2,
  state: 'pending',
  why: { kind: 'waiting', cause: 'other jobs hold the nodes' } as any,
  word: 'Resources'
};

function show(...waiting: WaitingLaunch[]) {
  const known = { job_id: 'j-00000042' };
  const shown = context({ waiting, job: () => known });
  shown.props.commands.addCommand(CommandIDs.cancelLaunch, {
    execute: args => void shown.calls.push([CommandIDs.cancelLaunch, args])
  });
  return { ...shown, ...render(<WaitingLaunches {...shown.props} />) };
}

describe('a launch that waits for nodes', () => {
  it('says what it waits for, and until when', () => {
    show({ ...LAUNCH, expected_start_s: Date.now() / 1000 });
    expect(screen.getByText('finetune')).toBeTruthy();
    expect(
      screen.getByText('slurm-3f9a2c: 2 nodes of SLURM, job 7')
    ).toBeTruthy();
    expect(screen.getByText(/other jobs hold the nodes/).textContent).toBe(
      'other jobs hold the nodes (Resources)'
    );
    expect(screen.getByText(/^Expected to start at \d\d:\d\d$/)).toBeTruthy();
  });

  it('is followed by a cell, and canceled by a command that asks', () => {
    const { calls, inserted } = show(LAUNCH);
    fireEvent.click(screen.getByRole('button', { name: 'Insert cell' }));
    expect(inserted[0]).toContain('%mntrain attach slurm-3f9a2c');
    fireEvent.click(screen.getByRole('button', { name: 'Cancel…' }));
    expect(calls).toEqual([
      [CommandIDs.cancelLaunch, { cluster: 'slurm-3f9a2c' }]
    ]);
    expect(screen.queryByRole('button', { name: 'Attach' })).toBeNull();
  });

  it('that has its nodes says that no job is on them yet', () => {
    show({ ...LAUNCH, state: 'running', why: null, word: '' });
    expect(screen.getByText(/granted; no job has started/)).toBeTruthy();
  });

  it('opens the job whose nodes were taken', () => {
    const { calls, inserted } = show({ ...LAUNCH, job_id: 'j-00000042' });
    fireEvent.click(screen.getByRole('button', { name: 'Attach' }));
    expect(calls).toEqual([[CommandIDs.attach, { jobId: 'j-00000042' }]]);
    fireEvent.click(screen.getByRole('button', { name: 'Insert cell' }));
    expect(inserted[0]).toContain('%mntrain attach j-00000042');
  });

  it('that can never start says what to do', () => {
    const kind = 'never-granted' as const;
    const why = { kind, cause: 'no such partition', fix: 'name another' };
    show({ ...LAUNCH, why });
    expect(screen.getByText('Fix: name another')).toBeTruthy();
  });
});

it('nothing is shown where nothing waits', () => {
  expect(show().container.textContent).toBe('');
});

it('the server tells all that wait at once', () => {
  const message = { kind: 'waiting', seq: 4, waiting: [LAUNCH] } as const;
  const state = reduce(EMPTY, message as any);
  expect(state.waiting).toEqual([LAUNCH]);
  expect(state.seq).toBe(4);
  const gone = { ...message, seq: 5, waiting: [] } as any;
  expect(reduce(state, gone).waiting).toEqual([]);
});
