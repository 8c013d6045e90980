import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';

import { cellForJob, cellForNodes } from '../cells';
import { FailureCard, StallCard } from '../liveview/header';
import { statusLine } from '../plugins/status';
import { Jobs } from '../sidebar/jobs';
import { Nodes } from '../sidebar/nodes';
import { CommandIDs } from '../tokens';
import { job, node } from './samples';

const trans = nullTranslator.load('jupyter_mntrain');

function context(fields: Record<string, unknown> = {}) {
  const commands = new CommandRegistry();
  const calls: [string, unknown][] = [];
  for (const id of [
    CommandIDs.stop,
    CommandIDs.save,
    CommandIDs.logs,
    CommandIDs.attach
  ]) {
    commands.addCommand(id, {
      execute: args => {
        calls.push([id, args]);
      }
    });
  }
  const model = {
    nodes: [node('wopr')],
    jobs: [job()],
    job: () => undefined,
    changed: new Signal<any, void>({}),
    ...fields
  } as any;
  const inserted: string[] = [];
  const insert = (text: string) => void inserted.push(text);
  return {
    props: { model, commands, trans, insert, drag: () => undefined },
    calls,
    inserted
  };
}

afterEach(cleanup);

describe('a node', () => {
  it('offers its cell in a menu that the keyboard opens and walks', () => {
    const { props, inserted } = context();
    render(<Nodes {...props} />);
    fireEvent.keyDown(screen.getByRole('listitem'), {
      key: 'F10',
      shiftKey: true
    });
    const items = screen.getAllByRole('menuitem');
    expect(document.activeElement).toBe(items[0]);
    fireEvent.keyDown(items[0], { key: 'ArrowDown' });
    expect(document.activeElement).toBe(items[1]);
    fireEvent.click(items[0]);
    expect(inserted[0]).toContain('--member wopr:1');
    expect(screen.queryByRole('menu')).toBeNull();
  });

  it('says why it is silent', () => {
    const lost = node('wopr', {
      liveness: 'lost',
      reason: 'connection refused. Fix: start it.'
    });
    const { props } = context({ nodes: [lost] });
    render(<Nodes {...props} />);
    expect(screen.getByText(/start it/)).toBeTruthy();
    expect(screen.getByText(/lost, silent/)).toBeTruthy();
  });

  it('marks the version that diverges', () => {
    const odd = {
      ...node('wopr'),
      divergences: [
        { node: 'wopr', key: 'torch', value: '2.9', majority: '2.13' }
      ]
    };
    const { props } = context({ nodes: [odd] });
    render(<Nodes {...props} />);
    expect(screen.getByText(/torch 2.9, the others have 2.13/)).toBeTruthy();
  });
});

describe('a job', () => {
  it('is stopped by its button', () => {
    const { props, calls } = context();
    render(<Jobs {...props} />);
    fireEvent.click(screen.getByRole('button', { name: 'Stop' }));
    expect(calls).toEqual([[CommandIDs.stop, { jobId: job().job_id }]]);
  });

  it('that is stopping is not stopped again', () => {
    const { props, calls } = context({ jobs: [job({ state: 'stopping' })] });
    render(<Jobs {...props} />);
    fireEvent.click(screen.getByRole('button', { name: 'Stopping…' }));
    expect(calls).toEqual([]);
  });

  it('that failed names node and cause', () => {
    const failed = job({
      state: 'failed',
      cause: { summary: 'CUDA out of memory', time_s: 5 },
      cause_node: 'muthur'
    });
    const { props } = context({ jobs: [failed] });
    render(<Jobs {...props} />);
    expect(screen.getByText('muthur: CUDA out of memory')).toBeTruthy();
    expect(screen.queryByRole('button', { name: 'Stop' })).toBeNull();
  });

  it('that does not get on says whom it waits for, with the evidence', () => {
    const stall = {
      summary: 'rank 1 on muthur is in load (data.py:12)',
      fix: 'look there',
      since_s: 1000,
      node: 'muthur',
      rank: 1
    };
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
    expect(screen.getByText(/rank 1 on muthur is in load/)).toBeTruthy();
    cleanup();
    render(<StallCard job={stalled} trans={trans} />);
    expect(screen.getByRole('alert').textContent).toContain('Fix: look there');
    expect(screen.getByText('File …')).toBeTruthy();
    expect(screen.getByText('It told no stacks.')).toBeTruthy();
    cleanup();
    render(<StallCard job={job()} trans={trans} />);
    expect(screen.queryByRole('alert')).toBeNull();
  });

  it('that failed once says when it is tried again, or what it waits for', () => {
    const cause = { summary: 'killed by SIGKILL', time_s: 100 };
    const failed = { state: 'pending', cause, cause_node: 'muthur' } as const;
    const restart = { number: 2, at_s: 0 };
    const planned = context({ jobs: [job({ ...failed, restart })] });
    render(<Jobs {...planned.props} />);
    expect(screen.getByText(/attempt 2 begins at/)).toBeTruthy();
    expect(screen.getByRole('button', { name: 'Stop' })).toBeTruthy();
    cleanup();
    const waits = { ...restart, waits_for: 'muthur does not answer' };
    const waiting = job({ ...failed, restart: waits });
    render(<Jobs {...context({ jobs: [waiting] }).props} />);
    expect(
      screen.getByText('attempt 2 waits: muthur does not answer')
    ).toBeTruthy();
    cleanup();
    render(<FailureCard job={waiting} trans={trans} />);
    expect(screen.getByRole('alert').textContent).toContain('attempt 2 waits');
  });

  it('that waits for its turn says what for', () => {
    const restart = { number: 1, at_s: 0, waits_for: 'GPU 0 is promised' };
    const queued = job({ state: 'pending', attempt: 0, restart });
    render(<Jobs {...context({ jobs: [queued] }).props} />);
    expect(screen.getByText('in the queue: GPU 0 is promised')).toBeTruthy();
  });

  it('whose ranks save says where it could go on, and saves when asked', () => {
    const part = { node: 'muthur', state: 'running', saves: true } as any;
    const parts = [{ ...part, saved_step: 120 }];
    const { props, calls } = context({ jobs: [job({ parts })] });
    render(<Jobs {...props} />);
    expect(screen.getByText(/saved at 120/)).toBeTruthy();
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    expect(calls).toEqual([[CommandIDs.save, { jobId: job().job_id }]]);
    cleanup();
    render(<Jobs {...context({ jobs: [job()] }).props} />);
    expect(screen.queryByRole('button', { name: 'Save' })).toBeNull();
  });

  it('of many ranks is a grid with its counts', () => {
    const ranks = Array.from({ length: 64 }, (_, rank) => ({
      rank,
      node: 'n1',
      state: rank === 37 ? ('failed' as const) : ('running' as const)
    }));
    const { props } = context({ jobs: [job({ ranks })] });
    render(<Jobs {...props} />);
    expect(screen.getByText('63 running, 1 failed')).toBeTruthy();
    expect(screen.getByText('✕')).toBeTruthy();
  });
});

it('a name that is no plain word is never written into a cell', () => {
  const evil = node('x; rm -rf /');
  expect(cellForNodes([evil, node('wopr')])).not.toContain('rm');
  expect(cellForJob(job())).toContain('%mntrain attach j-0000abcd');
});

it('the status bar counts nodes and jobs', () => {
  const { props } = context({
    nodes: [node('wopr'), node('muthur', { liveness: 'lost' })]
  });
  expect(statusLine(props.model, trans)).toBe('1 of 2 nodes · 1 job 40\u202f%');
});

it('a job’s last evaluation stands beside its loss', () => {
  const numbers = { step: 4, total_steps: 10, loss: 2.5 };
  const evaluated = { ...numbers, evaluation_loss: 2.75 };
  render(<Jobs {...context({ jobs: [job({ numbers })] }).props} />);
  expect(screen.queryByText(/evaluation/)).toBeNull();
  cleanup();
  render(<Jobs {...context({ jobs: [job({ numbers: evaluated })] }).props} />);
  expect(screen.getByText(/loss 2\.500, evaluation 2\.750/)).toBeTruthy();
});
