import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';

import { textOf } from '../files/preview';
import { treeOf } from '../files/tree';
import { FilesView } from '../files/view';
import type { WrittenFiles } from '../schema';
import { context } from './context';
import { job } from './samples';

// jsdom has neither.
Object.assign(
  globalThis,
  jest.requireActual<Pick<typeof globalThis, 'TextDecoder' | 'TextEncoder'>>(
    'util'
  )
);
const bytes = (text: string) => new TextEncoder().encode(text);

function held(files: Record<string, number>, more = {}) {
  const list = Object.entries(files);
  return {
    path: '/jobs/work',
    files: list.map(([path, size_bytes]) => ({ path, size_bytes })),
    count: list.length,
    size_bytes: list.reduce((sum, [, size]) => sum + size, 0),
    ...more
  };
}

const TWO: WrittenFiles = {
  nodes: {
    wopr: held(
      {
        'log.txt': 12,
        'out/10.pt': 5e9,
        'out/9.pt': 1200,
        'out/deep/a.png': 9
      },
      { left_out: { 'out/link': 'a link to nothing' } }
    ),
    hal: held({ 'log.txt': 13 }, { count: 30_000 })
  },
  silent: { joshua: { cause: 'no answer', fix: '', kind: 'no-answer' } as any }
};

afterEach(cleanup);

function open(written: WrittenFiles, content: Record<string, string> = {}) {
  const asked: unknown[] = [];
  const api = {
    files: async () => written,
    file: async (_: string, query: { path: string }) => {
      asked.push(query);
      return bytes(content[query.path]).buffer;
    },
    fileUrl: (jobId: string, { path, node }: { path: string; node: string }) =>
      `/${jobId}/${node}/${path}`
  };
  const { model } = context({ api, job: () => job() }).props;
  render(<FilesView model={model} jobId="j-1" />);
  return asked;
}

test('a tree has folders first, numbers in order, and what is in them added up', () => {
  const { folders, files, count, size } = treeOf(TWO);
  expect(files.map(one => [one.name, one.node])).toEqual([
    ['log.txt', 'wopr'],
    ['log.txt', 'hal']
  ]);
  const [out] = folders;
  expect(out.files.map(one => one.name)).toEqual(['9.pt', '10.pt']);
  expect(out.folders[0].path).toBe('out/deep');
  expect([out.count, out.size]).toEqual([3, 5_000_001_209]);
  expect([count, size]).toEqual([4, 5_000_001_234]);
});

test('what is left out, not listed, or not told is said', async () => {
  open(TWO);
  await screen.findByText('30,004 files', { exact: false });
  screen.getByText('1 entry is left out');
  screen.getByText(/wopr: out\/link: a link to nothing/);
  screen.getByText(/hal has 30,000 files; only 1 of them/);
  expect(screen.getByRole('alert').textContent).toContain('no answer');
});

test('a text is previewed from the node that was chosen, and no more than can be read', async () => {
  const asked = open(TWO, { 'log.txt': 'rank 1\n' });
  fireEvent.click(
    (await screen.findAllByRole('button', { name: 'log.txt' }))[1]
  );
  const text = await screen.findByLabelText('Text of log.txt');
  expect(text.textContent).toBe('rank 1\n');
  expect(asked).toEqual([{ path: 'log.txt', node: 'hal', most: 262_144 }]);
});

test('a picture is shown, and a large file is not asked for', async () => {
  const asked = open(TWO, { 'out/deep/a.png': 'picture' });
  fireEvent.click(await screen.findByRole('button', { name: 'a.png' }));
  const picture = await screen.findByRole('img', { name: 'out/deep/a.png' });
  expect(picture.getAttribute('src')).toMatch(/^data:image\/png;base64,/);
  fireEvent.click(screen.getByRole('button', { name: '10.pt' }));
  await screen.findByText(/No preview/);
  expect(asked).toHaveLength(1);
});

test('a download goes straight from the server to a file', async () => {
  open({ nodes: { wopr: held({ 'out/a b.pt': 3 }) } });
  const links: (string | null)[][] = [];
  const follow = HTMLAnchorElement.prototype.click;
  HTMLAnchorElement.prototype.click = function () {
    links.push([this.getAttribute('href'), this.download]);
  };
  try {
    fireEvent.click(
      await screen.findByRole('button', { name: 'Download out/a b.pt' })
    );
  } finally {
    HTMLAnchorElement.prototype.click = follow;
  }
  expect(links).toEqual([['/j-1/wopr/out/a b.pt', 'a b.pt']]);
});

test('a job that wrote nothing is told how to', async () => {
  open({ nodes: { wopr: held({}) } });
  await screen.findByText(/\{out\}/);
});

test('a text that is cut in the middle of a letter is one, other bytes are not', () => {
  expect(textOf(bytes('naïve').slice(0, 3))).toBe('na');
  expect(textOf(new Uint8Array([80, 75, 0, 3]))).toBeUndefined();
  expect(textOf(new Uint8Array([0xff, 0xfe]))).toBeUndefined();
  expect(textOf(bytes(''))).toBe('');
});
