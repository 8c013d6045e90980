/** The history of a node: a tab from the menu of its row, with the charts of its agent's values. */

import type { Locator } from '@playwright/test';

import { execute, expectAccessible, openSidebar, shot } from './helpers';
import { expect, test } from './lab';

test('a node tells what it did, also without a job', async ({ page }) => {
  const sidebar = await openSidebar(page);
  const row = sidebar.locator('.mnt-node', { hasText: 'node1' }).first();
  await row.getByRole('button', { name: 'More for node1' }).click();
  await page.getByText('Show its history').click();

  const view = page.locator('.mnt-history');
  await expect(view).toBeVisible();
  const use = view.getByRole('img', { name: /^Use: .*CPU \d+/ });
  await expect(use).toBeVisible();
  await expect(view.getByRole('img', { name: /^Memory: used/ })).toBeVisible();
  await expect(view).toContainText('One point is');
  await shot(view, 'history-hour-light');
  await expectAccessible(page, '.mnt-history');

  for (const [label, seconds] of [
    ['10 min', 600],
    ['24 h', 86_400],
    ['Week', 604_800]
  ] as const) {
    await view.getByRole('button', { name: label }).click();
    await expect(view).toHaveAttribute('data-span', String(seconds));
    await expect(use).toBeVisible();
  }
  await view.getByRole('button', { name: '10 min' }).click();
  await expect(use).toBeVisible();

  const charts = view.getByRole('group', { name: 'History of node1' });
  await charts.focus();
  await page.keyboard.press('ArrowLeft');
  await expect(view.locator('.mnt-flag')).toHaveText(/\d\d:\d\d:\d\d/);
  await page.keyboard.press('Escape');
  await expect(view.locator('.mnt-flag')).toHaveCount(0);

  await view.getByRole('button', { name: 'Table' }).click();
  await expect(view.getByRole('row', { name: /^Use, CPU/ })).toContainText('%');
  await view.getByRole('button', { name: 'Table' }).click();

  await page.theme.setDarkTheme();
  for (const width of [1000, 1440]) {
    await page.setViewportSize({ width, height: 900 });
    await expect(use).toBeVisible();
    await shot(page, `history-dark-${width}`);
  }
  await page.theme.setLightTheme();
  await shot(page, 'history-light-1440');
});

test('the palette opens a history without naming a node', async ({ page }) => {
  await openSidebar(page);
  await expect(page.locator('.mnt-node').first()).toBeVisible();
  await execute(page, 'mntrain:node-history');
  await expect(page.locator('.mnt-history')).toBeVisible();
});

/** What reaches beyond the sidebar, or is wider than its place in a row. */
function cutOff(sidebar: Locator): Promise<string[]> {
  return sidebar.evaluate(root => {
    const { right } = root.getBoundingClientRect();
    const all = [...root.querySelectorAll<HTMLElement>('*')];
    return all
      .filter(
        one =>
          one.getBoundingClientRect().right > right + 1 ||
          one.scrollWidth > one.clientWidth + 1
      )
      .filter(one => one.clientWidth > 0 && !(one instanceof SVGElement))
      .map(one => `${one.className}: ${one.textContent}`);
  });
}

test('each value has its last hour next to it where there is room', async ({
  page
}) => {
  const sidebar = await openSidebar(page);
  const node = sidebar.locator('.mnt-node', { hasText: 'node1' }).first();
  const use = node.getByRole('img', {
    name: /^Utilization of CPU of node1, last hour: .+% to .+%/
  });
  // JupyterLab lets no sidebar be narrower than 250 pixels.
  for (const width of [250, 270, 300, 400]) {
    await page.sidebar.setWidth(width, 'left');
    await expect(use).toHaveCount(width < 260 ? 0 : 1);
    expect(await cutOff(sidebar)).toEqual([]);
    await shot(sidebar, `sidebar-${width}-light`);
  }
  await expectAccessible(page, '.mnt-sidebar');
  await page.theme.setDarkTheme();
  for (const width of [400, 300, 270, 250]) {
    await page.sidebar.setWidth(width, 'left');
    await expect(use).toHaveCount(width < 260 ? 0 : 1);
    await shot(sidebar, `sidebar-${width}-dark`);
  }
  await page.theme.setLightTheme();
  await page.sidebar.setWidth(300, 'left');
  await node.getByRole('button', { name: 'Open history' }).click();
  await expect(page.locator('.mnt-history')).toBeVisible();
  await page.sidebar.setWidth(250, 'left');
});
