import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';

import { Jobs } from '../sidebar/jobs';
import { CommandIDs } from '../tokens';
import { context } from './context';
import { job } from './samples';

afterEach(cleanup);

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
      problem: {
        kind: 'gpu-out-of-memory',
        cause: 'CUDA out of memory',
        node: 'muthur',
        time_s: 5
      }
    });
    const { props } = context({ jobs: [failed] });
    render(<Jobs {...props} />);
    expect(screen.getByText('muthur: CUDA out of memory')).toBeTruthy();
    expect(screen.queryByRole('button', { name: 'Stop' })).toBeNull();
  });

  it('that failed, stalls and is slow says so in this order', () => {
    const told = (kind: any, cause: string) => ({ kind, cause });
    const stall = { ...told('stopped', 'it is stopped'), time_s: 5 };
    const warnings = [told('slow-rank', 'it is slow')];
    const hurt = job({ stall, warnings, hurt: 'stalled' });
    const { container } = render(<Jobs {...context({ jobs: [hurt] }).props} />);
    expect(container.textContent).toMatch(/stalled.*it is stopped.*it is slow/);
    expect(container.textContent).not.toContain('running');
    cleanup();
    const problem = told('exception', 'it failed');
    const worse = job({ problem, stall, warnings, hurt: 'failed' });
    render(<Jobs {...context({ jobs: [worse] }).props} />);
    expect(document.body.textContent).toMatch(
      /it failed.*it is stopped.*it is slow/
    );
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
      state: rank === 37 ? ('failed' as const) : ('running' as const)
    }));
    const parts = [
      { node_id: 'n1', node: 'n1', state: 'running' as const, ranks }
    ];
    const { props } = context({ jobs: [job({ parts })] });
    render(<Jobs {...props} />);
    expect(screen.getByText('63 running, 1 failed')).toBeTruthy();
    expect(screen.getByText('✕')).toBeTruthy();
  });
});

it('a job’s last evaluation stands next to its loss', () => {
  const numbers = { step: 4, total_steps: 10, loss: 2.5 };
  const evaluated = { ...numbers, evaluation_loss: 2.75 };
  render(<Jobs {...context({ jobs: [job({ numbers })] }).props} />);
  expect(screen.queryByText(/evaluation/)).toBeNull();
  cleanup();
  render(<Jobs {...context({ jobs: [job({ numbers: evaluated })] }).props} />);
  expect(screen.getByText(/loss 2\.500, evaluation 2\.750/)).toBeTruthy();
});
