import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';

import { Nodes } from '../sidebar/nodes';
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
