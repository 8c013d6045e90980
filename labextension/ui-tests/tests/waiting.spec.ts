/** Below a prefix: everything is reached, and launches in a scheduler's queue are shown and canceled. */

import { expect, test } from '@playwright/test';

import { execute, expectAccessible, openSidebar, shot } from './helpers';

const port = Number(process.env.UI_PORT);

test('what waits for nodes says why, and is canceled once confirmed', async ({
  page
}) => {
  await page.goto(`http://127.0.0.1:${port + 1}/user/x/lab`);
  const sidebar = await openSidebar(page);
  await expect(sidebar.getByText('2 of 2 nodes up')).toBeVisible();
  const section = sidebar.getByRole('region', { name: 'Waiting for nodes' });
  await expect(section).toContainText('2 nodes of SLURM, job 7');
  await expect(section).toContainText('(Resources)');
  await expect(section).toContainText(/Expected to start at .*\d\d:\d\d/);
  await section.scrollIntoViewIfNeeded();
  await expectAccessible(page, '.mnt-sidebar');
  await shot(sidebar, 'waiting-light');
  const theme = 'JupyterLab Dark';
  await execute(page, 'apputils:change-theme', { theme });
  await expect(page.locator('body')).toHaveAttribute(
    'data-jp-theme-light',
    'false'
  );
  await shot(sidebar, 'waiting-dark');
  const cancel = section.getByRole('button', { name: 'Cancel…' });
  await cancel.click();
  const asked = page.locator('.jp-Dialog');
  await asked.getByRole('button', { name: 'Keep waiting' }).click();
  await expect(section).toBeVisible();
  await cancel.click();
  await asked.getByRole('button', { name: 'Cancel the launch' }).click();
  await expect(section).toHaveCount(0);
});
