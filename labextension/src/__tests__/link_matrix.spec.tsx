import { cleanup, render, screen } from '@testing-library/react';
import * as React from 'react';

import type { LinkMeasurement } from '../schema';
import { LinkMatrix } from '../sidebar/link_matrix';
import { Links } from '../sidebar/links';

afterEach(cleanup);

const GIGABIT = 941e6 / 8;

function link(
  sender: string,
  receiver: string,
  share = 1,
  fields: Partial<LinkMeasurement> = {}
): LinkMeasurement {
  return {
    sender,
    receiver,
    interface: 'eth1',
    address: '10.0.0.9',
    capacity: { bytes_per_s: share * GIGABIT, source: 'measured', time_s: 1 },
    ...fields
  };
}

/** Every pair of some nodes. */
function every(
  names: string[],
  share: (from: string, to: string) => number = () => 1
): LinkMeasurement[] {
  return names.flatMap(from =>
    names.filter(to => to !== from).map(to => link(from, to, share(from, to)))
  );
}

function cells(): (string | null)[][] {
  return screen
    .getAllByRole('row')
    .slice(1)
    .map(row => [...row.querySelectorAll('td')].map(one => one.textContent));
}

describe('the link matrix', () => {
  it('has each pair at its place and marks slow links, not by color alone', () => {
    const slow = (from: string, to: string) =>
      from === 'hal' ? (to === 'wopr' ? 0.1 : 0.7) : 1;
    render(<LinkMatrix links={every(['wopr', 'hal', 'eddie'], slow)} />);
    const [eddie, hal, wopr] = cells();
    expect([eddie[0], hal[1], wopr[2]]).toEqual(['—', '—', '—']);
    expect(hal[2]).toMatch(/^▼/);
    expect(hal[0]).toMatch(/^▽/);
    expect([eddie[1], wopr[0]].join('')).not.toMatch(/[▽▼]/);
    expect(screen.getByText(/less than half/)).toBeTruthy();
    expect(screen.getByTitle(/hal → wopr/).className).toBe('c-bad');
  });

  it('explains no marks where there are none', () => {
    render(<LinkMatrix links={every(['a', 'b', 'c'])} />);
    expect(screen.queryByText(/less than half/)).toBeNull();
  });

  it('shows the faster of two networks, and nothing that is outdated', () => {
    const names = ['a', 'b', 'c'];
    const outdated = every(names, () => 9).map(one => ({
      ...one,
      outdated: 'eth1 was down'
    }));
    const slower = every(names, () => 0.1);
    render(<LinkMatrix links={[...every(names), ...slower, ...outdated]} />);
    expect(cells()[0].slice(1).join('')).not.toMatch(/[▽▼]/);
    expect(screen.getByTitle(/a → b/).textContent).toMatch(/941/);
  });

  it.each([2, 11])('is not drawn for %s nodes', count => {
    const names = [...Array(count).keys()].map(at => `node${at}`);
    const { container } = render(<LinkMatrix links={every(names)} />);
    expect(container.innerHTML).toBe('');
  });
});

describe('a link in the sidebar', () => {
  it.each([
    [0.5, '50 %', /941/],
    [2, '100 %', /1\.88.*best seen, more than measured/]
  ])(
    'that carries %s of what was measured is used to %s',
    (share, used, capacity) => {
      const sent = { name: 'eth1', sent_bytes_per_s: share * GIGABIT };
      const eth1 = { name: 'eth1', links: [link('a', 'b')] };
      const view = {
        info: { inventory: { interfaces: [eth1] } },
        heartbeat: { interfaces: [sent] }
      };
      const model = { nodes: [{ key: 'a', name: 'a', view }] };
      render(<Links {...({ model, commands: {} } as any)} />);
      const meter = screen.getByRole('meter');
      expect(meter.getAttribute('aria-valuetext')?.replace(/\s/g, ' ')).toBe(
        used
      );
      expect(screen.getByTitle(/→ b/).textContent).toMatch(capacity);
    }
  );
});
