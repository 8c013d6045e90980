/** A job's whole life in JupyterLab: found, launched, watched, left and met again, stopped. */

import { expect, test } from '@jupyterlab/galata';

import {
  ENDLESS,
  FAILING,
  HANGING,
  endAll,
  execute,
  expectAccessible,
  expectNoSideways,
  jobs,
  launchFromCell,
  newNotebook,
  openSidebar,
  reload,
  restartKernel,
  shot
} from './helpers';

// Galata answers a kernel's restart itself, in a way that the page waits for ever.
test.use({ kernels: null });

test.afterEach(async ({ page, baseURL }) => {
  await endAll(page, `${baseURL}/`);
});

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

test('a job launched in a cell is drawn live, survives reload and kernel death, and stops from the sidebar', async ({
  page,
  baseURL
}) => {
  test.setTimeout(240_000); // its job's first step alone takes a busy machine a minute
  const view = await launchFromCell(page, 'live.ipynb', ENDLESS);
  await expect(view.locator('.mnt-head')).toContainText('running', {
    timeout: 90_000
  });
  const step = async () => Number(await view.getAttribute('data-mnt-step'));
  await expect.poll(step, { timeout: 90_000 }).toBeGreaterThan(3);
  await expect(view.getByText('tok/s').first()).toBeVisible();
  await expectNoSideways(view);
  await shot(page, 'live-light');
  await view.getByText('Schedule of one step').click();
  await expect(view.locator('.mnt-gantt .mnt-span-F').first()).toBeVisible({
    timeout: 40_000 // it asks again after 15 s
  });
  await expectNoSideways(view);
  await expectAccessible(page, '.jp-OutputArea-output .mnt-live');

  const sidebar = await openSidebar(page);
  await expect(sidebar.getByText('endless')).toBeVisible();
  await shot(sidebar, 'sidebar-running-light');
  await expectAccessible(page, '.mnt-sidebar');

  await page.notebook.save();
  await reload(page);
  await page.locator('.jp-NotebookPanel').waitFor();
  const again = page.locator('.jp-OutputArea-output .mnt-live').last();
  const shown = async () => Number(await again.getAttribute('data-mnt-step'));
  await expect(again).toBeVisible({ timeout: 30_000 });
  const before = await shown();
  await expect.poll(shown).toBeGreaterThan(before);
  await shot(page, 'live-after-reload');

  await execute(page, 'kernelmenu:shutdown');
  await expect.poll(shown).toBeGreaterThan((await shown()) + 1);
  await shot(page, 'live-after-kernel-death');

  await openSidebar(page);
  await sidebar.getByRole('button', { name: /^Stop/ }).first().click();
  await page.getByRole('button', { name: /^Stop/ }).last().click();
  await expect(again.locator('.mnt-head')).toContainText('canceled', {
    timeout: 60_000
  });
  expect((await jobs(page, `${baseURL}/`))[0].state).toBe('canceled');
  await shot(page, 'live-stopped');
});

test('a restarted kernel and a reopened notebook show it live again', async ({
  page,
  tmpPath
}) => {
  const view = await launchFromCell(page, 'again.ipynb', ENDLESS);
  const step = async () => Number(await view.getAttribute('data-mnt-step'));
  await expect.poll(step, { timeout: 90_000 }).toBeGreaterThan(5);
  await page.notebook.save();
  await restartKernel(page);
  const before = await step();
  await expect.poll(step).toBeGreaterThan(before + 1);

  await page.notebook.save();
  await page.notebook.close();
  await page.notebook.openByPath(`${tmpPath}/again.ipynb`);
  await expect.poll(step, { timeout: 30_000 }).toBeGreaterThan(before + 2);
  // From the first step on: what the server reads is the ranks' own record.
  await view.getByRole('button', { name: 'Table' }).click();
  await expect(view.getByRole('rowheader').first()).toBeVisible();
});

test('the live view in the dark theme, as a table and as a tab', async ({
  page
}) => {
  await page.theme.setDarkTheme();
  const view = await launchFromCell(page, 'dark.ipynb', ENDLESS);
  const step = async () => Number(await view.getAttribute('data-mnt-step'));
  await expect.poll(step, { timeout: 90_000 }).toBeGreaterThan(3);
  await shot(page, 'live-dark');
  await expectAccessible(page, '.jp-OutputArea-output .mnt-live');
  await view.getByRole('button', { name: 'Table' }).click();
  await expect(view.getByRole('table').first()).toBeVisible();
  await shot(view, 'live-table-dark');
});

test('a failed job names the node and the cause first', async ({ page }) => {
  const view = await launchFromCell(page, 'failed.ipynb', FAILING);
  const card = view.getByRole('alert');
  await expect(card).toContainText('no data on node', { timeout: 90_000 });
  await expect(card).toContainText(/node[12]/);
  await expect(card).toContainText(/(Certain|Likely): /);
  await shot(page, 'live-failed-light');
  await expectAccessible(page, '.jp-OutputArea-output .mnt-live');
  const sidebar = await openSidebar(page);
  await expect(sidebar.getByText(/no data on node/).first()).toBeVisible();
  await shot(sidebar, 'sidebar-failed-light');
  await page.theme.setDarkTheme();
  await shot(page, 'live-failed-dark');
});

test('a job that hangs says which rank and where, until it goes on', async ({
  page
}) => {
  const view = await launchFromCell(page, 'hangs.ipynb', HANGING);
  const card = view.getByRole('alert');
  await expect(card).toContainText('busy in shuffle_shards (cell.py:', {
    timeout: 90_000
  });
  await expect(card).toContainText('Fix:');
  await card.locator('summary').last().click();
  await expect(card.locator('pre').last()).toContainText('shuffle_shards');
  await shot(page, 'live-stalled-light');
  await expectAccessible(page, '.jp-OutputArea-output .mnt-live');
  const sidebar = await openSidebar(page);
  await expect(sidebar.getByText(/busy in shuffle_shards/)).toBeVisible();
  await view.getByRole('button', { name: 'Stacks' }).click();
  const stacks = page.locator('.mnt-stacks');
  await expect(stacks).toContainText('rank 1 on node');
  await expect(stacks).toContainText('is in a barrier, in make (cell.py:');
  await expect(stacks.getByLabel('Stack of rank 1')).toContainText(
    'shuffle_shards'
  );
  await shot(page, 'stacks-light');
  await expectAccessible(page, '.mnt-stacks');
  await page.theme.setDarkTheme();
  await shot(page, 'live-stalled-dark');
  await shot(stacks, 'stacks-dark');
  await expectAccessible(page, '.mnt-stacks');
  const rank = sidebar.getByRole('button', { name: 'Log of rank 0, running' });
  await rank.click({ button: 'right' });
  await page.getByRole('menuitem', { name: 'Show stacks' }).click();
  await expect(
    page.locator('.mnt-stacks').last().getByLabel('Stack of rank 0')
  ).toBeVisible();
});

test('a cell for a node is inserted by its button', async ({ page }) => {
  await newNotebook(page, 'insert.ipynb');
  const sidebar = await openSidebar(page);
  await sidebar
    .getByRole('button', { name: /Insert cell/ })
    .first()
    .click();
  await expect(page.locator('.jp-NotebookPanel')).toContainText('%mntrain');
});

test('no request leaves the machine', async ({ page }) => {
  const foreign: string[] = [];
  page.on('request', request => {
    const { hostname, protocol } = new URL(request.url());
    if (protocol.startsWith('http') && hostname !== '127.0.0.1') {
      foreign.push(request.url());
    }
  });
  await page.reload();
  await openSidebar(page);
  await page.waitForTimeout(2000);
  expect(foreign).toEqual([]);
});

