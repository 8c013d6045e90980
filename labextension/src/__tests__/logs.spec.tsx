import {
  cleanup,
  fireEvent,
  render,
  screen,
  waitFor
} from '@testing-library/react';
import * as React from 'react';

import { LogView } from '../logs/view';
import { context } from './context';
import { job } from './samples';

const LINES = [
  { node: 'wopr', rank: 0, text: 'step 1', time_s: 1_700_000_000 },
  { node: 'hal', rank: null, text: 'torchrun is up', time_s: null }
];

afterEach(cleanup);

function open(rank?: number) {
  const asked: unknown[] = [];
  const api = {
    log: async (_: string, query: unknown) => {
      asked.push(query);
      return { lines: LINES };
    },
    logFileUrl: (jobId: string, rank?: number) => `/file/${jobId}/${rank}`
  };
  const { model } = context({ api, job: () => job() }).props;
  render(<LogView model={model} jobId="j-1" rank={rank} />);
  return asked;
}

test('lines have times, nodes and ranks', async () => {
  open();
  const log = screen.getByLabelText(/Log of/);
  await waitFor(() => expect(log.textContent).toContain('step 1'));
  const [first, second] = log.textContent!.split('\n');
  expect(first).toMatch(/\d\d:\d\d:\d\d \[wopr rank 0\] step 1$/);
  expect(second).toBe('[hal] torchrun is up');
});

test('a download is of what is chosen, straight from the server', async () => {
  open(1);
  const clicked: string[] = [];
  const follow = HTMLAnchorElement.prototype.click;
  HTMLAnchorElement.prototype.click = function () {
    clicked.push(this.getAttribute('href')!);
  };
  try {
    fireEvent.click(await screen.findByRole('button', { name: 'Download' }));
  } finally {
    HTMLAnchorElement.prototype.click = follow;
  }
  expect(clicked).toEqual(['/file/j-1/1']);
});
