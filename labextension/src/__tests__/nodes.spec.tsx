import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import { MessageLoop } from '@lumino/messaging';
import * as React from 'react';

import { Nodes } from '../sidebar/cluster';
import { context } from './context';
import { node } from './samples';

afterEach(cleanup);

describe('a node', () => {
  it('offers its cell in a menu that the keyboard opens and walks', () => {
    const { props, inserted } = context();
    render(<Nodes {...props} />);
    fireEvent.keyDown(screen.getByRole('listitem'), {
      key: 'F10',
      shiftKey: true
    });
    const active = () => {
      MessageLoop.flush();
      return screen
        .getAllByRole('menuitem')
        .findIndex(item => item.classList.contains('lm-mod-active'));
    };
    expect(active()).toBe(0);
    const menu = screen.getByRole('menu').parentElement!;
    fireEvent.keyDown(menu, { key: 'ArrowDown', keyCode: 40 });
    expect(active()).toBe(1);
    fireEvent.keyDown(menu, { key: 'ArrowUp', keyCode: 38 });
    fireEvent.keyDown(menu, { key: 'Enter', keyCode: 13 });
    expect(inserted[0]).toContain('--member wopr:1');
    expect(screen.queryByRole('menu')).toBeNull();
  });

  it('says why it is silent', () => {
    const lost = node('wopr', {
      liveness: 'lost',
      problem: {
        kind: 'connection-refused',
        cause: 'connection refused',
        fix: 'start it'
      }
    });
    const { props } = context({ nodes: [lost] });
    render(<Nodes {...props} />);
    expect(screen.getByText(/start it/)).toBeTruthy();
    expect(screen.getByText(/lost, silent for/)).toBeTruthy();
  });

  it('says why it has fewer GPUs than cards', () => {
    const mine = node('wopr');
    const { inventory } = mine.view.info!;
    inventory.gpus = [
      {
        index: 0,
        uuid: 'GPU-0',
        name: 'RTX',
        compute_capability: [8, 6],
        memory_total_bytes: 24 * 2 ** 30,
        memory_used_bytes: 0
      }
    ];
    inventory.gpu_note = 'GPU 1 is split into MIG instances';
    inventory.versions.driver = '570.1';
    inventory.versions.driver_cuda = '12.8';
    const { props } = context({ nodes: [mine] });
    render(<Nodes {...props} />);
    expect(screen.getByText('1 × RTX').title).toBe(
      'RTX: compute capability 8.6\ndriver 570.1, CUDA 12.8'
    );
    expect(screen.getByText('GPU 1 is split into MIG instances')).toBeTruthy();
  });

  it('says what its owner offers, and when not', () => {
    const mine = node('wopr', {
      problem: { kind: 'drained', cause: 'its owner drained it: exam' }
    });
    const gpu = (index: number) => ({
      index,
      uuid: `GPU-${index}`,
      name: 'RTX',
      memory_total_bytes: 24 * 2 ** 30,
      memory_used_bytes: 0
    });
    const info = mine.view.info!;
    info.inventory.gpus = [gpu(0), gpu(1)];
    info.availability = {
      gpus: [0],
      memory_bytes: 20 * 2 ** 30,
      hours: 'Mon-Fri 19:00-07:00'
    };
    const { props, inserted } = context({ nodes: [mine] });
    render(<Nodes {...props} />);
    expect(screen.getByText('up, drained')).toBeTruthy();
    expect(screen.getByText(/its owner drained it: exam/)).toBeTruthy();
    expect(screen.getByText('Offered: GPU 0, 20.0 GiB of each')).toBeTruthy();
    expect(
      screen.getByText('Offered: Mon-Fri 19:00-07:00, by its clock')
    ).toBeTruthy();
    expect(screen.getAllByText(/not offered by its owner/)).toHaveLength(1);
    fireEvent.keyDown(screen.getByRole('listitem'), {
      key: 'F10',
      shiftKey: true
    });
    MessageLoop.flush();
    const menu = screen.getByRole('menu').parentElement!;
    fireEvent.keyDown(menu, { key: 'Enter', keyCode: 13 });
    expect(inserted[0]).toContain('--member wopr:1');
  });

  it('lists the interfaces that others reach it over', () => {
    const names = (addresses: string[]) => {
      cleanup();
      const mine = node('wopr');
      const info = mine.view.info!;
      info.addresses = addresses;
      info.inventory.interfaces = [
        {
          name: 'eno1',
          kind: 'ethernet',
          is_up: true,
          addresses: ['10.0.0.2/24']
        },
        { name: 'eno2', kind: 'ethernet', is_up: true, addresses: [] },
        {
          name: 'docker0',
          kind: 'virtual',
          is_up: true,
          addresses: ['172.17.0.1/16']
        },
        {
          name: 'lo',
          kind: 'loopback',
          is_up: true,
          addresses: ['127.0.0.1/8']
        }
      ];
      const { props } = context({ nodes: [mine] });
      const { container } = render(<Nodes {...props} />);
      return [
        ...container.querySelectorAll('.mnt-interface > :first-child')
      ].map(one => one.textContent);
    };
    expect(names(['10.0.0.2:8765'])).toEqual(['eno1']);
    expect(names(['127.0.0.2:8765', '10.0.0.2:8765'])).toEqual(['eno1']);
    expect(names(['127.0.0.2:8765'])).toEqual(['lo']);
    expect(names(['[::1]:8765', 'localhost:8765'])).toEqual(['lo']);
  });

  it('has its last hour as lines where there is room', async () => {
    const asked: unknown[] = [];
    const nodeHistory = async (...given: unknown[]) => {
      asked.push(given);
      const mean = [0.25, 0.75];
      const lines = [{ figure: 'cpu_share', mean }];
      const parts = [{ kind: 'node', lines }];
      return { begin_s: 0, step_s: 1800, points: 2, parts };
    };
    const { props } = context({ api: { nodeHistory } });
    const { rerender } = render(<Nodes {...props} />);
    expect(asked).toEqual([]);
    rerender(<Nodes {...props} hasLines />);
    const name =
      'Utilization of CPU of wopr, last hour: 25\u202f% to 75\u202f%';
    expect(await screen.findByRole('img', { name })).toBeTruthy();
    expect(asked).toEqual([['key-of-wopr', 3600, 120]]);
    expect(screen.queryByRole('meter')).toBeNull();
  });

  it('that is lost is not asked for its history', async () => {
    const asked: unknown[] = [];
    const nodeHistory = async () => asked.push('asked');
    const nodes = [node('wopr', { liveness: 'lost' })];
    const { props } = context({ nodes, api: { nodeHistory } });
    render(<Nodes {...props} hasLines />);
    expect(screen.getByText(/values until/)).toBeTruthy();
    expect(asked).toEqual([]);
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
    expect(
      screen.getByText(/torch 2.9, the other nodes have 2.13/)
    ).toBeTruthy();
  });
});
