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

  it('says what its owner lends, and when not', () => {
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
    info.lending = {
      gpus: [0],
      memory_bytes: 20 * 2 ** 30,
      hours: 'Mon-Fri 19:00-07:00'
    };
    const { props, inserted } = context({ nodes: [mine] });
    render(<Nodes {...props} />);
    expect(screen.getByText('up, drained')).toBeTruthy();
    expect(screen.getByText(/its owner drained it: exam/)).toBeTruthy();
    expect(screen.getByText('Lent: GPU 0, 20.0 GiB of each')).toBeTruthy();
    expect(
      screen.getByText('Lent: Mon-Fri 19:00-07:00, by its clock')
    ).toBeTruthy();
    expect(screen.getAllByText(/not lent by its owner/)).toHaveLength(1);
    fireEvent.keyDown(screen.getByRole('listitem'), {
      key: 'F10',
      shiftKey: true
    });
    MessageLoop.flush();
    const menu = screen.getByRole('menu').parentElement!;
    fireEvent.keyDown(menu, { key: 'Enter', keyCode: 13 });
    expect(inserted[0]).toContain('--member wopr:1');
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
