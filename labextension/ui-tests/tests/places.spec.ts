/** The same in Notebook 7, without our server part, narrow, and with 64 ranks. */

import { test as plain } from '@playwright/test';

import { execute, expectAccessible, openSidebar, shot } from './helpers';
import { expect, test } from './lab';

const port = Number(process.env.UI_PORT);
const url = (number: number, path = '/') =>
  `http://127.0.0.1:${port + number}${path}`;

plain('without the server part it says what to do', async ({ page }) => {
  await page.goto(url(2, '/lab'));
  const sidebar = await openSidebar(page);
  await plain
    .expect(
      sidebar.getByText(
        'jupyter_mntrain is not installed on the Jupyter server'
      )
    )
    .toBeVisible();
  await plain.expect(sidebar.getByText('pip install')).toBeVisible();
  await shot(sidebar, 'sidebar-missing');
  await expectAccessible(page, '.mnt-sidebar');
});

plain('in Notebook 7 the sidebar opens from the menu', async ({ page }) => {
  await page.goto(url(0, '/tree'));
  const sidebar = await openSidebar(page);
  await plain.expect(sidebar.getByText('2 of 2 nodes up')).toBeVisible();
  await shot(page, 'notebook7');
});

test.describe('64 ranks', () => {
  test.use({ baseURL: url(3, '') });

  test('are drawn as bands, a strip per node and the slowest stage', async ({
    page
  }) => {
    const sidebar = await openSidebar(page);
    await expect(sidebar.getByText('8 of 8 nodes up')).toBeVisible();
    await shot(sidebar, 'sidebar-64');
    const [job] = await (
      await page.request.get(`${url(3)}mntrain/v1/jobs`)
    ).json();
    await execute(page, 'mntrain:attach', { jobId: job.job_id });
    const view = page.locator('.mnt-live').last();
    const step = async () => Number(await view.getAttribute('data-mnt-step'));
    // The 300 steps before the page was opened: without them the lines end in mid-air.
    await expect.poll(step).toBeGreaterThan(300);
    await expect(view.getByText(/Pace of 64 ranks/)).toBeVisible();
    await shot(page, 'live-64-light');
    await expectAccessible(page, '.mnt-live');
    await page.theme.setDarkTheme();
    await shot(page, 'live-64-dark');
  });
});

test('narrow, nothing is cut off', async ({ page }) => {
  const sidebar = await openSidebar(page);
  await expect(sidebar.getByText('2 of 2 nodes up')).toBeVisible();
  // JupyterLab keeps its own sidebar at 250 pixels or more.
  const style = await page.addStyleTag({
    content: '.mnt-sidebar { width: 230px; }'
  });
  const overflowing = (memory = '') =>
    sidebar.evaluate((root, memory) => {
      const value = root.querySelector('.mnt-gpu > :last-child')!.firstChild!;
      value.nodeValue = memory || value.nodeValue;
      const edge = root.getBoundingClientRect().right + 1;
      return [...root.querySelectorAll<HTMLElement>('*')]
        .filter(node => !node.closest('.mnt-matrix')) // it scrolls
        .map(node => [node.getBoundingClientRect().right, node] as const)
        .filter(([right]) => right > edge)
        .map(([right, node]) => `${right - edge} px: ${node.outerHTML}`);
    }, memory);
  expect(await overflowing()).toEqual([]);
  await shot(sidebar, 'sidebar-230');
  // As a machine with two terabytes says it.
  expect(await overflowing('1,234.5 of 2,015.5\u00a0GiB')).toEqual([]);
  await shot(sidebar, 'sidebar-230-terabytes');
  await style.evaluate(node => (node as Element).remove());
});
