/** The collective benchmark: a tab that begins it, follows it, and shows what it found. */

import { execute, expectAccessible, openSidebar, shot } from './helpers';
import { expect, test } from './lab';

const RATES = { send: 1, all_reduce: 0.9, all_gather: 0.8 };
const LINE = 23.9e6;

/** What a run on a real network says: of two nodes, at 200 Mbit/s, with one slow pair. */
function report() {
  const sizes = Object.entries(RATES).flatMap(([operation, share]) =>
    Array.from({ length: 9 }, (_, i) => {
      const size = 4 ** i * 1024;
      const rate = (share * LINE * size) / (size + 40_000);
      return {
        operation,
        size_bytes: size,
        seconds: size / rate,
        algorithm_bytes_per_s: rate,
        bus_bytes_per_s: rate,
        line_share: rate / LINE
      };
    })
  );
  const pair = (sender: number, rate: number) => ({
    sender,
    receiver: 1 - sender,
    sender_node: `node${sender + 1}`,
    receiver_node: `node${2 - sender}`,
    size_bytes: 64 << 20,
    bytes_per_s: rate,
    latency_s: 0.00021,
    line_bytes_per_s: LINE
  });
  return {
    job_id: 'j-0000abcd',
    nodes: ['node1', 'node2'],
    backend: 'gloo',
    time_s: Date.now() / 1000 - 120,
    took_s: 40,
    line_bytes_per_s: LINE,
    sizes,
    pairs: [pair(0, 0.98 * LINE), pair(1, 0.4 * LINE)],
    problems: [
      {
        kind: 'slow-link',
        node: 'node2',
        cause:
          'node2 → node1 reaches 76 Mbit/s, 40% of the 191 Mbit/s that its link carries',
        fix: 'see whether something else uses the link or the cores of both, and run bench again'
      }
    ]
  };
}

test('collectives are timed at a click, and shown as picture and table', async ({
  page
}) => {
  const running = {
    is_running: true,
    doing: 'measuring node1 → node2',
    done: 1,
    total: 2
  };
  let isOver = false;
  let refusal: object | null = {
    kind: 'jobs-running',
    cause:
      'job j-1 runs on node1: a benchmark would slow it down, and its results would be too low',
    fix: 'wait until it has ended, or stop it'
  };
  let begun = 0;
  await page.route(/mntrain\/v1\/bench/, async route => {
    if (route.request().method() === 'POST') {
      if (refusal) {
        await route.fulfill({ status: 409, json: refusal });
        refusal = null;
        return;
      }
      begun += 1;
    }
    const now = isOver ? { report: report() } : begun ? running : {};
    await route.fulfill({ json: now });
  });
  const sidebar = await openSidebar(page);
  await sidebar.getByRole('button', { name: 'Benchmark' }).click();
  const view = page.locator('.mnt-bench');
  const button = view.getByRole('button', { name: /^Run/ });
  await button.click();
  await expect(view.getByRole('alert')).toContainText('would slow it down');
  await button.click();
  await expect(view.getByRole('progressbar')).toBeVisible();
  await expect(button).toHaveAttribute('aria-disabled', 'true');
  await shot(page, 'bench-running-light');
  isOver = true;
  await expect(view.getByRole('status')).toHaveText(/measured 2\smin/);
  expect(begun).toBe(1);
  await expect(view.getByRole('table', { name: 'Operations' })).toContainText(
    'all-reduce'
  );
  await view.getByText('Pairs, slowest first').click();
  await shot(page, 'bench-light');
  await expectAccessible(page, '.mnt-bench');
  await page.theme.setDarkTheme();
  await shot(page, 'bench-dark');
  await expectAccessible(page, '.mnt-bench');
  const style = await page.addStyleTag({
    content: '.mnt-bench { width: 230px; }'
  });
  await view.getByText('Message sizes').click();
  const overflowing = await view.evaluate(root => {
    const edge = root.getBoundingClientRect().right + 1;
    return [...root.querySelectorAll('*')]
      .filter(node => node.getBoundingClientRect().right > edge)
      .map(node => node.outerHTML.slice(0, 200));
  });
  expect(overflowing).toEqual([]);
  await shot(view, 'bench-230-dark');
  await page.theme.setLightTheme();
  await shot(view, 'bench-230-light');
  await style.evaluate(node => (node as Element).remove());
});

test('the server says what it knows of benchmarks, and refuses unknown nodes', async ({
  page
}) => {
  await execute(page, 'mntrain:bench', { nodes: ['nobody'] });
  const view = page.locator('.mnt-bench');
  await view.getByRole('button', { name: 'Run benchmark' }).click();
  await expect(view).toContainText('nobody');
  await expect(view.getByRole('alert')).toBeVisible();
});
