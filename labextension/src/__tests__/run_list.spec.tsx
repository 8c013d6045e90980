import {
  act,
  cleanup,
  fireEvent,
  render,
  screen,
  waitFor
} from '@testing-library/react';
import { Signal } from '@lumino/signaling';
import * as React from 'react';

import { RunList } from '../runs/list';
import { RunListing } from '../runs/listing';
import type { JobEntry } from '../schema';
import { CommandIDs } from '../tokens';
import { context } from './context';
import { job } from './samples';

beforeAll(() => {
  (globalThis as any).ResizeObserver = class {
    observe() {}
    disconnect() {}
  };
});

afterEach(cleanup);

const many = (count: number): JobEntry[] =>
  Array.from({ length: count }, (_, i) =>
    job({
      job_id: `j-${i}`,
      name: `run ${i}`,
      state: 'succeeded',
      submitted_s: i
    })
  );

/** A list whose server lists these jobs, while the page knows only the newest. */
async function list(jobs: JobEntry[], fields: Record<string, unknown> = {}) {
  const [newest] = [...jobs].sort((a, b) => b.submitted_s - a.submitted_s);
  const { props, calls } = context({
    jobs: newest ? [newest] : [],
    job: (id: string) => jobs.find(one => one.job_id === id),
    api: { jobs: () => Promise.resolve(jobs) },
    connection: 'live',
    status: { is_read_only: false },
    changed: new Signal<any, void>({}),
    ...fields
  });
  const listing = new RunListing(props.model);
  await listing.read();
  render(<RunList listing={listing} commands={props.commands} />);
  return { listing, calls, model: props.model };
}

const rows = () => screen.getAllByRole('row').slice(1);

describe('the list of runs', () => {
  it('is searched, filtered and sorted, and says how many there are', async () => {
    await list([
      ...many(3),
      job({ job_id: 'j-9', name: 'bad', state: 'failed', submitted_s: 9 })
    ]);
    expect(rows()).toHaveLength(4);
    expect(rows()[0].textContent).toContain('bad');
    fireEvent.click(screen.getByRole('button', { name: 'name' }));
    const head = screen.getByRole('columnheader', { name: 'name' });
    expect(head.getAttribute('aria-sort')).toBe('ascending');
    expect(rows()[1].textContent).toContain('run 0');
    fireEvent.click(screen.getByRole('button', { name: 'failed 1' }));
    expect(rows()).toHaveLength(1);
    const field = screen.getByRole('searchbox');
    fireEvent.change(field, { target: { value: 'run' } });
    fireEvent.click(screen.getByRole('button', { name: 'Show all states' }));
    expect(rows()).toHaveLength(3);
    fireEvent.change(field, { target: { value: 'nothing like it' } });
    fireEvent.click(screen.getByRole('button', { name: 'Clear the search' }));
    expect(rows()).toHaveLength(4);
  });

  it('that nothing fits says what excludes how many, and undoes it', async () => {
    await list([
      ...many(3),
      job({ job_id: 'j-9', entry: ['tune.py'], submitted_s: 9 })
    ]);
    const program = screen.getByRole('combobox', { name: 'Program' });
    fireEvent.change(program, { target: { value: 'tune.py' } });
    expect(rows()).toHaveLength(1);
    const age = screen.getByRole('combobox', { name: 'Age' });
    fireEvent.change(age, { target: { value: '86400' } });
    expect(
      screen.getByText(/^The age “24 hours” excludes 4 of 4/)
    ).toBeTruthy();
    expect(screen.getByText(/“tune.py” excludes 3 of 4/)).toBeTruthy();
    fireEvent.click(screen.getByRole('button', { name: 'Show all ages' }));
    expect(rows()).toHaveLength(1);
  });

  it('of a thousand runs has few rows in the page, but counts all', async () => {
    await list(many(1000));
    expect(rows().length).toBeLessThan(50);
    const grid = screen.getByRole('treegrid');
    expect(grid.getAttribute('aria-rowcount')).toBe('1001');
    expect(rows()[0].getAttribute('aria-rowindex')).toBe('2');
    const loose = screen.getByRole('button', { name: 'Rows' });
    expect(loose.getAttribute('aria-disabled')).toBe('true');
  });

  it('opens a run of several jobs, and ticks by keys', async () => {
    const { calls } = await list([
      ...many(2),
      job({ job_id: 'j-8', name: 'again', run: 'j-1', submitted_s: 8 })
    ]);
    const [first] = rows();
    expect(first.getAttribute('aria-expanded')).toBe('false');
    first.focus();
    fireEvent.keyDown(first, { key: 'ArrowRight' });
    expect(rows().map(row => row.getAttribute('aria-level'))).toEqual([
      ...['1', '2', '2'],
      '1'
    ]);
    fireEvent.keyDown(rows()[0], { key: ' ' });
    expect(screen.getByText('1 selected')).toBeTruthy();
    fireEvent.keyDown(rows()[0], { key: 'ArrowDown' });
    expect(document.activeElement).toBe(rows()[1]);
    fireEvent.keyDown(rows()[1], { key: 'Enter' });
    await waitFor(() =>
      expect(calls).toEqual([[CommandIDs.attach, { jobId: 'j-8' }]])
    );
    fireEvent.keyDown(rows()[1], { key: '/' });
    expect(document.activeElement).toBe(screen.getByRole('searchbox'));
  });

  it('takes its keys from the name, too, but not Enter, nor any from the head', async () => {
    const { calls } = await list(many(2));
    const name = screen.getByRole('button', { name: 'run 0' });
    act(() => name.focus());
    const press = (where: Element, key: string) =>
      fireEvent.keyDown(where, { key });
    // What is not handled is left to the button.
    expect(press(name, 'Enter')).toBe(true);
    expect(calls).toEqual([]);
    expect(press(screen.getByRole('button', { name: 'name' }), 'F2')).toBe(
      true
    );
    expect(document.querySelector('.jp-Dialog')).toBeNull();
    expect(press(name, 'F2')).toBe(false);
    expect(await screen.findByText('Rename run 0')).toBeTruthy();
    document.querySelector<HTMLElement>('.jp-Dialog .jp-mod-reject')!.click();
    await waitFor(() =>
      expect(document.querySelector('.jp-Dialog')).toBeNull()
    );
  });

  it('shows the columns that it leaves out where there is little room', async () => {
    await list(many(1));
    const button = () =>
      screen.getByRole('button', { name: /4 (more )?columns/ });
    expect(button().title).toBe('duration, nodes, tok/s, MFU');
    const room = document.querySelector('.mnt-runs-room')!;
    expect(room.classList).not.toContain('mnt-all');
    fireEvent.click(button());
    expect(room.classList).toContain('mnt-all');
    expect(button().textContent).toBe('Hide 4 columns');
  });

  it('of a read-only driver changes nothing', async () => {
    await list(many(1), { status: { is_read_only: true } });
    fireEvent.click(screen.getByRole('checkbox'));
    expect(screen.queryByRole('button', { name: 'Delete…' })).toBeNull();
  });

  it('asks again once the page has lost a job, and shows why it cannot', async () => {
    const { model } = await list(many(2));
    model.api.jobs = () => Promise.reject(new Error('no answer'));
    model.jobs = [];
    act(() => model.changed.emit());
    expect(await screen.findByText(/no answer/)).toBeTruthy();
    expect(rows()).toHaveLength(2);
  });
});
