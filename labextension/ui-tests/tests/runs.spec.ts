/** The list of all runs: searched, named, noted, compared and deleted, on real agents. */

import { readFileSync } from 'fs';

import type { Locator, Page } from '@playwright/test';

import {
  endAll,
  execute,
  expectAccessible,
  jobs,
  shot,
  START_MS
} from './helpers';
import { expect, test } from './lab';

const port = Number(process.env.UI_PORT);

test.use({ baseURL: `http://127.0.0.1:${port + 5}` });

const SCRIPT = `
import time
from jupyter_mntrain import Recorder
recorder = Recorder()
for step in range(1, 61):
    time.sleep(0.02)
    recorder.step(tokens=64, loss=LOSS / step ** 0.3 + 0.05 * (step % 3))
print("made all steps")
`;

/** A short job on one node, launched as a job file. */
async function launch(
  page: Page,
  base: string,
  name: string,
  loss: number
): Promise<string> {
  const spec = [
    'mntrain_job = 1',
    'entry = ["script.py"]',
    `name = "${name}"`,
    `priority = ${loss}`,
    'participants = [{ node = "node1" }]',
    `files = { "script.py" = ${JSON.stringify(SCRIPT.replace('LOSS', String(loss)))} }`,
    'environment = { OMP_NUM_THREADS = "1" }'
  ].join('\n');
  const answer = await page.request.post(`${base}mntrain/v1/jobs`, {
    data: { spec, yes: true }
  });
  expect(answer.ok(), await answer.text()).toBeTruthy();
  return (await answer.json()).job.job_id;
}

async function expectEnded(page: Page, base: string, job: string) {
  const state = async () =>
    (await jobs(page, base)).find(one => one.job_id === job)?.state;
  await expect.poll(state, { timeout: START_MS }).toBe('succeeded');
}

function rowOf(list: Locator, name: string): Locator {
  return list.getByRole('row').filter({ hasText: name });
}

/** The file that a click on this button brings. */
async function downloaded(
  page: Page,
  where: Locator,
  name: string
): Promise<string> {
  const coming = page.waitForEvent('download');
  await where.getByRole('button', { name }).click();
  return readFileSync(await (await coming).path()).toString();
}

/** Pictures of both themes at both widths, for people. */
async function shots(page: any, where: Locator, name: string): Promise<void> {
  for (const width of [1000, 1440]) {
    await page.setViewportSize({ width, height: 1000 });
    await page.theme.setLightTheme();
    await expectAccessible(page, '.mnt-runs, .mnt-compare');
    await shot(where, `${name}-${width}-light`);
    await page.theme.setDarkTheme();
    await expectAccessible(page, '.mnt-runs, .mnt-compare');
    await shot(where, `${name}-${width}-dark`);
  }
  await page.theme.setLightTheme();
}

/** What two compared runs show, and how it is read, zoomed and taken away. */
async function compared(page: any): Promise<void> {
  const view: Locator = page.locator('.mnt-compare');
  const labels = view.locator('.mnt-chart-labels text');
  await expect(labels).toHaveCount(4); // two runs in two charts
  const differing = view.locator('.mnt-differences table');
  await expect(differing.getByRole('row', { name: /priority/ })).toContainText(
    '4'
  );
  await shots(page, view, 'compare');
  await view.getByRole('button', { name: 'Table' }).click();
  const losses = view.getByRole('table', { name: 'Loss' });
  await expect(losses.getByRole('row', { name: /^step 60 / })).toContainText(
    /\d\.\d{3}/
  );
  await expectAccessible(page, '.mnt-compare');
  await shot(view, 'compare-table-light');
  await view.getByRole('button', { name: 'Table' }).click();

  const charts = view.locator('.mnt-charts');
  await charts.focus();
  await page.keyboard.press('End');
  await expect(view.locator('.mnt-flag')).toHaveText('step 60');
  await page.keyboard.press('Shift+ArrowLeft');
  await page.keyboard.press('Shift+ArrowLeft');
  await page.keyboard.press('Enter');
  await expect(charts).toHaveAttribute('data-from', '58');
  await expect(view.locator('.mnt-zoom-line')).toContainText('step 58');
  await page.keyboard.press('0');
  await view.getByLabel('Axis').selectOption('elapsed');
  await expect(charts).toHaveAttribute('data-from', '0');

  await view.getByRole('button', { name: /^Show A/ }).click();
  await expect(labels).toHaveCount(2);
  const coming = page.waitForEvent('download');
  await view.getByRole('button', { name: /Export/ }).click();
  await page
    .getByRole('menuitem', { name: 'Download everything as CSV' })
    .click();
  const text = readFileSync(await (await coming).path()).toString();
  expect(text.trim().split('\n')).toHaveLength(1 + 2 * 60);
  expect(text.split('\n')[0]).toMatch(/^run,name,step,tokens,elapsed/);
}

test.afterEach(async ({ page, baseURL }) => {
  await endAll(page, `${baseURL}/`);
});

test('runs are found, named, noted and deleted', async ({ page, baseURL }) => {
  const base = `${baseURL}/`;
  const ids: string[] = [];
  for (const [name, loss] of [
    ['nostromo', 3],
    ['sulaco', 4],
    ['auriga', 5]
  ] as const) {
    const id = await launch(page, base, name, loss);
    await expectEnded(page, base, id);
    ids.push(id);
  }
  await page.sidebar.close('left');
  await execute(page, 'mntrain:runs');
  const list = page.locator('.mnt-runs');
  await expect(rowOf(list, 'auriga')).toBeVisible();
  await expect(rowOf(list, 'nostromo')).toContainText('succeeded');
  await expect(rowOf(list, 'nostromo')).toContainText('60');
  const line = { name: 'loss from 4.050 to 1.171', exact: true };
  await expect(rowOf(list, 'sulaco').getByRole('img', line)).toBeVisible();

  // By keys: the list, its first row, a note, a name.
  const first = rowOf(list, 'auriga');
  await first.focus();
  await page.keyboard.press('n');
  const dialog = page.locator('.jp-Dialog');
  await dialog.getByRole('textbox').fill('r 16, a note about the link');
  await page.keyboard.press('Enter');
  await expect(first).toContainText('a note about the link');
  await first.getByRole('button', { name: 'auriga', exact: true }).focus();
  await page.keyboard.press('F2');
  await dialog.getByRole('textbox').fill('betty');
  await page.keyboard.press('Enter');
  await expect(rowOf(list, 'betty')).toBeVisible();
  expect((await jobs(page, base))[0]).toMatchObject({
    job_id: ids[2],
    name: 'betty',
    note: 'r 16, a note about the link'
  });

  await rowOf(list, 'betty').focus();
  await page.keyboard.press('/');
  await page.keyboard.type('SULACO');
  await expect(list.getByRole('row')).toHaveCount(2);
  await expect(list.getByRole('button', { name: 'All 1' })).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(rowOf(list, 'betty')).toBeVisible();
  await list.getByRole('button', { name: 'name', exact: true }).click();
  await expect(
    list.getByRole('columnheader', { name: 'name', exact: true })
  ).toHaveAttribute('aria-sort', 'ascending');

  await list.getByLabel('Node').selectOption('node1');
  await list.getByLabel('Program').selectOption('script.py');
  await list.getByLabel('Age').selectOption('24 hours');
  const csv = await downloaded(page, list, 'Download CSV');
  expect(csv).toContain(`${ids[0]},"nostromo",succeeded`);
  for (const label of ['Node', 'Program', 'Age']) {
    await list.getByLabel(label).selectOption('any');
  }

  await rowOf(list, 'betty').getByRole('checkbox').check();
  await rowOf(list, 'sulaco').getByRole('checkbox').check();
  await expect(list.getByText('2 selected')).toBeVisible();
  await shots(page, list, 'runs');
  await page.setViewportSize({ width: 800, height: 1000 });
  const mfu = list.getByRole('columnheader', { name: 'MFU' });
  await expect(mfu).toBeHidden();
  await shot(list, 'runs-800-light');
  await list.getByRole('button', { name: 'Show 4 more columns' }).click();
  await expect(mfu).toBeVisible();
  await expectAccessible(page, '.mnt-runs');
  await shot(list, 'runs-800-all-light');
  await list.getByRole('button', { name: 'Hide 4 columns' }).click();
  await page.setViewportSize({ width: 1440, height: 1000 });
  await expect(list.getByRole('button', { name: /columns/ })).toBeHidden();
  await list.getByRole('button', { name: 'Compare' }).click();
  await compared(page);
  await execute(page, 'mntrain:runs');
  await list.getByRole('button', { name: 'Clear', exact: true }).click();

  await rowOf(list, 'sulaco').focus();
  await page.keyboard.press('Delete');
  await expect(dialog).toContainText('on node1');
  await shot(page as any, 'runs-delete-light');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await expect(rowOf(list, 'sulaco')).toBeVisible();
  await rowOf(list, 'sulaco').focus();
  await page.keyboard.press('Delete');
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await expect(rowOf(list, 'sulaco')).toHaveCount(0);
  expect((await jobs(page, base)).map(one => one.job_id)).not.toContain(ids[1]);

  await rowOf(list, 'betty').focus();
  await page.keyboard.press('Enter');
  await expect(
    page.locator('.mnt-live').filter({ hasText: ids[2] })
  ).toBeVisible();

  await execute(page, 'mntrain:logs', { jobId: ids[0] });
  const log = page.locator('.mnt-log');
  await expect(log).toContainText('made all steps');
  expect(await downloaded(page, log, 'Download')).toContain('made all steps');
});
