import { cleanup, render, screen } from '@testing-library/react';
import * as React from 'react';

import { FailureCard } from '../liveview/status/failure';
import { StallCard } from '../liveview/status/stall';
import { PartNotes } from '../part_notes';
import { WarningsCard } from '../liveview/status/warnings';
import { Jobs } from '../sidebar/jobs';
import { context } from './context';
import { job } from './samples';

afterEach(cleanup);

describe('a job', () => {
  it('that stops says what it waits for, and which node cannot store it', () => {
    const held = {
      pid: 123,
      command: '/usr/bin/python train.py',
      status: 'D (disk sleep)',
      waits_in: 'nfs_wait'
    };
    const lost = { kind: 'no-state', cause: 'it is gone', fix: 'restore it' };
    const stopping = job({
      state: 'stopping',
      parts: [{ node: 'muthur', waits_for: [held], state_problem: lost } as any]
    });
    render(<PartNotes job={stopping} />);
    screen.getByText(
      'muthur: stopping, waiting for pid 123 python (uninterruptible, nfs_wait)'
    );
    screen.getByText('muthur: it is gone');
  });

  it('without progress says whom it waits for, with the evidence', () => {
    const stall = {
      kind: 'busy',
      cause: 'in its own code, load (data.py:12)',
      fix: 'look there',
      time_s: 1000,
      seen_s: 1030,
      node: 'muthur',
      rank: 1
    } as const;
    const stacks = [
      { rank: 1, doing: 'busy', where: 'load (data.py:12)', text: 'File …' },
      { rank: 0, doing: 'waiting for others' }
    ];
    const stalled = job({
      stall,
      parts: [{ node: 'muthur', node_id: 'x', stall: { stacks } } as any]
    });
    const { props } = context({ jobs: [stalled] });
    render(<Jobs {...props} />);
    expect(
      screen.getByText('muthur: rank 1: in its own code, load (data.py:12)')
    ).toBeTruthy();
    cleanup();
    render(<StallCard job={stalled} />);
    expect(screen.getByRole('alert').textContent).toContain('Fix: look there');
    expect(screen.getByText('File …')).toBeTruthy();
    screen.getByText('rank 1 on muthur: in its own code, load (data.py:12)');
    expect(screen.getByRole('alert').textContent).toMatch(
      /since .*:40, seen at .*:10/
    );
    expect(
      screen.getByText('No stacks were received from this rank.')
    ).toBeTruthy();
    cleanup();
    render(<StallCard job={job()} />);
    expect(screen.queryByRole('alert')).toBeNull();
  });

  it('that succeeded says why its numbers are doubtful', () => {
    const warnings = [
      {
        kind: 'ranks-never-met',
        cause: 'the ranks never met: 2 separate trainings',
        fix: 'call init_process_group()'
      },
      {
        kind: 'traceback',
        cause: 'printed a traceback',
        node: 'muthur',
        rank: 1,
        detail: 'ValueError: x'
      }
    ] as const;
    const doubtful = job({ state: 'succeeded', warnings: [...warnings] });
    const { props } = context({ jobs: [doubtful] });
    render(<Jobs {...props} />);
    expect(
      screen.getByText(/the ranks never met: 2 separate trainings/)
    ).toBeTruthy();
    cleanup();
    render(<WarningsCard job={doubtful} />);
    const { textContent } = screen.getByRole('alert');
    expect(textContent).toContain('Fix: call init_process_group()');
    expect(textContent).toContain('muthur: rank 1: printed a traceback');
    expect(screen.getByText('ValueError: x')).toBeTruthy();
    cleanup();
    render(<WarningsCard job={job()} />);
    expect(screen.queryByRole('alert')).toBeNull();
  });

  it('that failed once says when it is tried again, or what it waits for', () => {
    const problem = {
      kind: 'killed',
      cause: 'killed by SIGKILL',
      node: 'muthur',
      time_s: 100
    } as const;
    const failed = { state: 'pending', problem } as const;
    const restart = { number: 2, at_s: 0 };
    const planned = context({ jobs: [job({ ...failed, restart })] });
    render(<Jobs {...planned.props} />);
    expect(screen.getByText(/attempt 2 starts at/)).toBeTruthy();
    expect(screen.getByRole('button', { name: 'Stop' })).toBeTruthy();
    cleanup();
    const waits_for = {
      kind: 'silent',
      cause: 'does not answer',
      node: 'muthur'
    } as const;
    const waits = { ...restart, waits_for };
    const waiting = job({ ...failed, restart: waits });
    render(<Jobs {...context({ jobs: [waiting] }).props} />);
    expect(
      screen.getByText('attempt 2 is waiting: muthur: does not answer')
    ).toBeTruthy();
    cleanup();
    render(<FailureCard job={waiting} />);
    expect(screen.getByRole('alert').textContent).toContain(
      'attempt 2 is waiting'
    );
  });
});

describe('a queued job', () => {
  it('says what it waits for', () => {
    const waits_for = { kind: 'gpu-taken', cause: 'GPU 0 is leased' } as const;
    const restart = { number: 1, at_s: 0, waits_for };
    const queued = job({ state: 'pending', attempt: 0, restart });
    render(<Jobs {...context({ jobs: [queued] }).props} />);
    expect(screen.getByText('queued: GPU 0 is leased')).toBeTruthy();
  });
});
