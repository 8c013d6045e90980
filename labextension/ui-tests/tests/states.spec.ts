/** What a person sees when something is missing, silent, narrow or dragged. */

import type { Response, WebSocketRoute } from '@playwright/test';

import {
  execute,
  expectAccessible,
  expectNoSideways,
  newNotebook,
  openSidebar,
  reload,
  shot
} from './helpers';
import { expect, test } from './lab';

const port = Number(process.env.UI_PORT);

test('the sidebar finds the nodes and says what they have', async ({
  page
}) => {
  const sidebar = await openSidebar(page);
  for (const node of ['node1', 'node2']) {
    await expect(
      sidebar.getByRole('button', { name: new RegExp(`^${node} up`) })
    ).toBeVisible();
  }
  await expect(sidebar.getByText('2 of 2 nodes up')).toBeVisible();
  await expect(page.locator('#jp-main-statusbar')).toContainText('2 nodes');
  await shot(sidebar, 'sidebar-nodes-light');
  await expectAccessible(page, '.mnt-sidebar');
  await page.theme.setDarkTheme();
  await shot(sidebar, 'sidebar-nodes-dark');
  await expectAccessible(page, '.mnt-sidebar');
});

test('a cell for a node is inserted by its button, or by dragging the node', async ({
  page
}) => {
  await newNotebook(page, 'insert.ipynb');
  const sidebar = await openSidebar(page);
  await sidebar
    .getByRole('button', { name: /Insert cell/ })
    .first()
    .click();
  await expect(page.locator('.jp-NotebookPanel')).toContainText('%mntrain');

  const row = sidebar.locator('.mnt-row-head').first();
  await expect(row).toContainText('node1');
  const from = (await row.boundingBox())!;
  const to = (await page.locator('.jp-Notebook .jp-Cell').boundingBox())!;
  await page.mouse.move(from.x + 60, from.y + from.height / 2);
  await page.mouse.down();
  await page.mouse.move(from.x + 80, from.y + 40, { steps: 3 });
  await page.mouse.move(to.x + 120, to.y + to.height - 4, { steps: 8 });
  await expect(page.locator('.mnt-dragged')).toBeVisible();
  await page.mouse.up();
  await expect(page.locator('.jp-NotebookPanel')).toContainText(
    '--member node1:1'
  );
});

/** The first part of the extension; tests/e2e/test_wheel.py has the same bound. */
const MOST_FIRST_BYTES = 200_000;

test.describe('apart', () => {
  // What is done to a WebSocket is not undone, and a kept page has opened parts before.
  test.use({ isApart: true });

  test('a page loads little, nothing from elsewhere, and says so when a part is missing', async ({
    page
  }) => {
    const foreign: string[] = [];
    const parts: Promise<Buffer>[] = [];
    const hear = (response: Response) => {
      const { hostname, protocol, pathname } = new URL(response.url());
      if (protocol.startsWith('http') && hostname !== '127.0.0.1') {
        foreign.push(response.url());
      }
      if (/jupyter-mntrain\/static\/.*\.js$/.test(pathname)) {
        parts.push(response.body());
      }
    };
    page.on('response', hear);
    await reload(page);
    const sidebar = await openSidebar(page);
    await expect(sidebar.getByText('2 of 2 nodes up')).toBeVisible();
    await page.waitForLoadState('networkidle');
    expect(foreign).toEqual([]);
    const first = (await Promise.all(parts)).map(({ length }) => length);
    expect(first).toHaveLength(3); // the entry, the plugins, the style
    expect(first.reduce((a, b) => a + b)).toBeLessThanOrEqual(MOST_FIRST_BYTES);

    let isGone = true;
    await page.route(/jupyter-mntrain\/static\//, route =>
      isGone ? route.fulfill({ status: 404 }) : route.fallback()
    );
    await execute(page, 'mntrain:runs');
    const tab = page.locator('.mnt-tab');
    await expect(tab.getByRole('alert')).toContainText('reload the page');
    await expectAccessible(page, '.mnt-tab');
    await shot(page, 'part-missing-light');
    await page.theme.setDarkTheme();
    await shot(page, 'part-missing-dark');
    isGone = false;
    await tab.getByRole('button', { name: 'Try again' }).click();
    await expect(tab.locator('.mnt-runs')).toBeVisible();
    expect(foreign).toEqual([]);
    page.off('response', hear);
  });

  test('while the server is silent the last values stay and it says so', async ({
    page
  }) => {
    const sockets: WebSocketRoute[] = [];
    let isDown = false;
    await page.routeWebSocket(/mntrain\/v1\/events/, socket => {
      socket.connectToServer();
      sockets.push(socket);
    });
    await page.route(/mntrain\/v1\/status/, route =>
      isDown ? route.abort() : route.continue()
    );
    await reload(page);
    const sidebar = await openSidebar(page);
    await expect(sidebar.getByText('2 of 2 nodes up')).toBeVisible();
    isDown = true;
    await Promise.all(sockets.map(socket => socket.close()));
    await expect(
      sidebar.getByText('The Jupyter server is not responding')
    ).toBeVisible();
    await expect(
      sidebar.getByText('node1', { exact: true }).first()
    ).toBeVisible();
    await shot(sidebar, 'sidebar-retrying');
    isDown = false;
    await sidebar.getByRole('button', { name: 'Try now' }).click();
    await expect(
      sidebar.getByText('The Jupyter server is not responding')
    ).toBeHidden();
  });
});

test('an address where nothing listens says so and what to do', async ({
  page
}) => {
  await openSidebar(page);
  await execute(page, 'mntrain:add-node', { address: '127.94.0.9:8765' });
  const said = page.locator('.Toastify__toast').last();
  await expect(said).toContainText('refused');
  await expect(said).toContainText('Fix:');
  await expect(said).toBeInViewport({ ratio: 0.9 });
  await shot(page, 'add-refused');
});

test('an invitation is one line to copy, with its bounds', async ({ page }) => {
  const sidebar = await openSidebar(page);
  await sidebar.getByRole('button', { name: 'Invite nodes…' }).first().click();
  const asked = page.locator('.jp-Dialog');
  await asked.getByRole('spinbutton').fill('2');
  await asked.getByRole('button', { name: 'Invite' }).click();
  const shown = page.locator('.jp-Dialog .mnt-invitation');
  await expect(shown).toContainText(
    /echo mntrain-\S{40,} \| mntrain agent join/
  );
  await expect(shown).toContainText('Valid for 2 machines until');
  await expectAccessible(page, '.jp-Dialog');
  await shot(page, 'invitation-light');
  await page.theme.setDarkTheme();
  await shot(page, 'invitation-dark');
  await page
    .locator('.jp-Dialog')
    .getByRole('button', { name: 'Close' })
    .click();
  await execute(page, 'mntrain:invite-nodes', { uses: 0 });
  await expect(page.locator('.Toastify__toast').last()).toContainText(
    'use 1 to 1000'
  );
});

test.describe('narrow', () => {
  test.use({ baseURL: `http://127.0.0.1:${port + 3}` });

  test('a live view of 600 or 480 pixels is not cut off', async ({ page }) => {
    await page.sidebar.close('left');
    const [job] = await (
      await page.request.get(`http://127.0.0.1:${port + 3}/mntrain/v1/jobs`)
    ).json();
    await execute(page, 'mntrain:attach', { jobId: job.job_id });
    const view = page.locator('.mnt-live').last();
    const step = async () => Number(await view.getAttribute('data-mnt-step'));
    await expect.poll(step).toBeGreaterThan(3);
    await expect(view.getByText(/Pace of 64 ranks/)).toBeVisible();
    const room = (await view.boundingBox())!.width;
    for (const width of [600, 480]) {
      await page.setViewportSize({
        width: Math.round(1400 - room + width),
        height: 1000
      });
      await expect
        .poll(async () => Math.round((await view.boundingBox())!.width))
        .toBe(width);
      const cut = () =>
        view.evaluate(root => {
          const right = root.getBoundingClientRect().right + 1;
          return [...root.querySelectorAll<HTMLElement>('*')]
            .filter(node => node.getBoundingClientRect().right > right)
            .filter(node => !node.closest('.mnt-visually-hidden, svg *'))
            .map(node => node.outerHTML.slice(0, 120));
        });
      // The charts take the new width with their next frame.
      await expect.poll(cut).toEqual([]);
      await expectNoSideways(view);
      await shot(view, `live-${width}`);
    }
  });
});
