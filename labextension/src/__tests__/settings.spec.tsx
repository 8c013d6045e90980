import { cleanup, fireEvent, render, waitFor } from '@testing-library/react';
import * as React from 'react';

import { SettingsFold } from '../liveview/settings';
import type { ShownSetting } from '../schema';

const SETTINGS: ShownSetting[] = [
  { name: 'train.steps', value: '7', origin: 'panel' },
  { name: 'train.seed', value: '0', origin: 'default' }
];

afterEach(cleanup);

function drawn(read: () => Promise<ShownSetting[]>) {
  const { container } = render(<SettingsFold read={read} />);
  const fold = container.querySelector('details')!;
  return {
    container,
    open: (isOpen: boolean) => {
      fold.open = isOpen;
    }
  };
}

const rows = (place: Element) =>
  [...place.querySelectorAll('tbody tr')].map(row =>
    [...row.children].map(cell => cell.textContent)
  );

it('shows what was chosen, and defaults on demand, read once', async () => {
  const read = jest.fn(async () => SETTINGS);
  const { container, open } = drawn(read);
  expect(read).not.toHaveBeenCalled();
  open(true);
  await waitFor(() =>
    expect(rows(container)).toEqual([['train.steps', '7', 'panel']])
  );
  fireEvent.click(container.querySelector('input')!);
  expect(rows(container)).toEqual([
    ['train.steps', '7', 'panel'],
    ['train.seed', '0', 'default']
  ]);
  open(false);
  open(true);
  expect(read).toHaveBeenCalledTimes(1);
});

it('says why they cannot be read, and tries again when opened again', async () => {
  const read = jest
    .fn<Promise<ShownSetting[]>, []>()
    .mockRejectedValueOnce(new Error('gone'))
    .mockResolvedValue(SETTINGS);
  const { container, open } = drawn(read);
  open(true);
  await waitFor(() =>
    expect(container.querySelector('[role=alert]')?.textContent).toContain(
      'gone'
    )
  );
  open(false);
  open(true);
  await waitFor(() => expect(rows(container)).toHaveLength(1));
  expect(container.querySelector('[role=alert]')).toBeNull();
});
