/** The second day of a run: saved and stopped, resumed from its view, its checkpoints kept and deleted. */

import {
  endAll,
  expectAccessible,
  expectNoSideways,
  jobs,
  launchFromCell,
  openSidebar,
  shot,
  START_MS
} from './helpers';
import { expect, test } from './lab';

const port = Number(process.env.UI_PORT);

test.use({ baseURL: `http://127.0.0.1:${port + 5}` });

const RUN = `%%mntrain launch --name second-day --env OMP_NUM_THREADS=1
[model]
preset = "llama-tiny"
[pipeline]
microbatches = 4
[train]
steps = 100000
batch_size = 8
[checkpoint]
keep = 4`;

test.afterEach(async ({ page, baseURL }) => {
  await endAll(page, `${baseURL}/`);
});

test('an ended run goes on where it was saved, and keeps what is pinned', async ({
  page,
  baseURL
}) => {
  const base = `${baseURL}/`;
  const newest = async () => (await jobs(page, base))[0];
  const view = await launchFromCell(page, 'second-day.ipynb', RUN);
  const step = async () => Number(await view.getAttribute('data-mnt-step'));
  await expect.poll(step, { timeout: START_MS }).toBeGreaterThan(2);
  await expect(view.getByRole('region', { name: 'Resume' })).toHaveCount(0);

  // Two checkpoints: one asked for, one as it stops.
  await view.getByRole('button', { name: 'Save' }).click();
  const saved = async () =>
    Math.max(...(await newest()).parts.map((one: any) => one.saved_step ?? 0));
  await expect.poll(saved).toBeGreaterThan(0);
  const early = await saved();
  const first = (await newest()).job_id;
  await page.request.post(`${base}mntrain/v1/jobs/${first}/save`, {
    data: { is_last: true }
  });
  const bar = view.getByRole('region', { name: 'Resume' });
  await expect(bar).toBeVisible();
  const late = await saved();
  expect(late).toBeGreaterThan(early);
  const count = (number: number) => number.toLocaleString('en-US');
  const resume = bar.getByRole('button', { name: /^Resume from step/ });
  await expect(resume).toHaveText(`Resume from step ${count(late)}`);
  await expect(bar).toContainText('losses will be those of an unbroken run');

  await bar.getByRole('button', { name: '2 checkpoints' }).click();
  const row = bar.getByRole('row').filter({
    has: page.getByRole('rowheader', { name: count(early), exact: true })
  });
  await expect(row).toContainText('node1, node2');
  await row.getByRole('button', { name: 'Pin' }).click();
  await expect(row.getByRole('button', { name: 'Pinned' })).toHaveAttribute(
    'aria-pressed',
    'true'
  );
  await expectNoSideways(view);
  await expectAccessible(page, '.jp-OutputArea-output .mnt-live');
  await shot(view, 'resume-ended-light');

  await resume.click();
  await expect
    .poll(async () => (await newest()).job_id)
    .not.toBe(first);
  const second = (await newest()).job_id;
  await expect(
    bar.getByRole('button', { name: `Attach to ${second}` })
  ).toBeVisible();
  await expect
    .poll(async () => (await newest()).numbers.step ?? 0)
    .toBeGreaterThan(late);
  const { parts } = await newest();
  expect(parts.map((one: any) => one.resumed_step)).toEqual([late, late]);

  // From the sidebar, with a dialog that says the same.
  await endAll(page, base);
  const sidebar = await openSidebar(page);
  const last = sidebar.locator('.mnt-job').first();
  await last.getByRole('button', { name: /^More for/ }).click();
  await page.getByRole('menuitem', { name: /^Resume from step/ }).click();
  const dialog = page.locator('.jp-Dialog');
  await expect(dialog).toContainText('losses will be those of an unbroken run');
  await shot(page, 'resume-dialog-light');
  await dialog.getByRole('button', { name: 'Cancel' }).click();

  await last.getByRole('button', { name: /^More for/ }).click();
  await page.getByRole('menuitem', { name: 'Checkpoints…' }).click();
  await expect(dialog.getByRole('rowheader')).toHaveCount(2);
  await dialog.getByRole('button', { name: 'Close' }).click();

  // The newest is deleted from the view, with a confirmation that says what is left.
  await page.theme.setDarkTheme();
  const gone = bar.getByRole('row').filter({
    has: page.getByRole('rowheader', { name: count(late), exact: true })
  });
  await gone.getByRole('button', { name: 'Delete…' }).click();
  await expect(dialog).toContainText(`from step ${count(early)} at best`);
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await expect(gone).toHaveCount(0);
  await expect(resume).toHaveText(`Resume from step ${count(early)}`);
  await expectAccessible(page, '.jp-OutputArea-output .mnt-live');
  await shot(view, 'resume-ended-dark');
});
