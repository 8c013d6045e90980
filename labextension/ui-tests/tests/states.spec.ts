/** What a person sees when something is missing, silent, narrow or dragged. */

import { expect, test } from '@jupyterlab/galata';
import type { WebSocketRoute } from '@playwright/test';

import {
  execute,
  expectAccessible,
  expectNoSideways,
  newNotebook,
  openSidebar,
  reload,
  shot
} from './helpers';

const port = Number(process.env.UI_PORT);

test('a node is dragged into a notebook as a cell', async ({ page }) => {
  await newNotebook(page, 'drag.ipynb');
  const sidebar = await openSidebar(page);
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
  await expect(sidebar.getByText('node1', { exact: true }).first()).toBeVisible();
  await shot(sidebar, 'sidebar-retrying');
  isDown = false;
  await sidebar.getByRole('button', { name: 'Try now' }).click();
  await expect(
    sidebar.getByText('The Jupyter server is not responding')
  ).toBeHidden();
});

test('an address where nothing listens says so and what to do', async ({
  page
}) => {
  await openSidebar(page);
  await execute(page, 'mntrain:add-node', { address: '127.94.0.9:1' });
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
  await page.locator('.jp-Dialog').getByRole('button', { name: 'Close' }).click();
  await execute(page, 'mntrain:invite-nodes', { uses: 0 });
  await expect(page.locator('.Toastify__toast').last()).toContainText(
    'use 1 to 1000'
  );
});

test.describe('narrow', () => {
  test.use({ baseURL: `http://127.0.0.1:${port + 4}` });

  for (const width of [480, 600]) {
    test(`a live view of ${width} pixels is not cut off`, async ({ page }) => {
      await page.sidebar.close('left');
      const [job] = await (
        await page.request.get(`http://127.0.0.1:${port + 4}/mntrain/v1/jobs`)
      ).json();
      await execute(page, 'mntrain:attach', { jobId: job.job_id });
      const view = page.locator('.mnt-live').last();
      const step = async () => Number(await view.getAttribute('data-mnt-step'));
      await expect.poll(step, { timeout: 60_000 }).toBeGreaterThan(3);
      await expect(view.getByText(/Pace of 64 ranks/)).toBeVisible();
      const room = (await view.boundingBox())!.width;
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
    });
  }
});
