/** What stands in the saved file is the last that anybody here knew of the job. */

import {
  expect,
  type IJupyterLabPageFixture,
  test
} from '@jupyterlab/galata';

import { endAll, ENDLESS, execute, launchFromCell, reload, restartKernel, runCell, shot } from './helpers';

const JOB_MIME = 'application/vnd.mntrain.job+json';

/** The outputs with jobs in a notebook file. */
async function saved(
  page: IJupyterLabPageFixture,
  base: string,
  path: string
): Promise<any[]> {
  const answer = await page.request.get(`${base}/api/contents/${path}`);
  const { content } = await answer.json();
  return content.cells
    .flatMap((cell: any) => cell.outputs ?? [])
    .filter((output: any) => output.data?.[JOB_MIME]);
}

function expectEnd(output: any, leastStep: number): void {
  const { job, series, saved_s } = output.data[JOB_MIME];
  expect(job.state).toBe('canceled');
  expect(job.numbers.step).toBeGreaterThanOrEqual(leastStep);
  expect(job.numbers.remaining_s ?? null).toBeNull();
  expect(series.job.step.at(-1)).toBe(job.numbers.step);
  expect(output.data['text/plain']).toContain('canceled');
  expect(output.data['text/plain']).toContain(
    new Date(1000 * saved_s).getFullYear().toString()
  );
  expect(Buffer.from(output.data['image/png'], 'base64').length).toBeGreaterThan(10_000);
  expect(JSON.stringify(output).length).toBeLessThan(400_000);
}

/** Whether the open notebook has changes that are not saved. */
function isDirty(page: IJupyterLabPageFixture): Promise<boolean> {
  return page.evaluate(
    () => (window as any).jupyterapp.shell.currentWidget.context.model.dirty
  );
}

// Galata answers a kernel's restart itself, in a way that the page waits for ever.
test.use({ kernels: null });

// A job of two nodes begins anew in each test, and training starts slowly on a small machine.
test.beforeEach(() => test.slow());

test.afterEach(async ({ page, baseURL }) => {
  await endAll(page, `${baseURL}/`);
});

test('a job that ended after a reload has ended in the file, in both of its views', async ({
  page,
  tmpPath,
  baseURL
}) => {
  await launchFromCell(page, 'reloaded.ipynb', ENDLESS);
  // A view out of sight is not redrawn.
  const view = page.locator('.jp-OutputArea-output .mnt-live').first();
  const step = async () => Number(await view.getAttribute('data-mnt-step'));
  await expect.poll(step, { timeout: 90_000 }).toBeGreaterThan(2);
  await runCell(page, 2, '%mntrain attach');
  const views = page.locator('.jp-OutputArea-output .mnt-live');
  await expect(views).toHaveCount(2);
  await page.notebook.save();
  await reload(page);
  await page.locator('.jp-NotebookPanel').waitFor();
  await expect(views).toHaveCount(2, { timeout: 30_000 });
  const before = await step();
  await expect.poll(step).toBeGreaterThan(before + 2);
  // Steps alone are no reason to ask for a save.
  expect(await isDirty(page)).toBe(false);

  const path = `${tmpPath}/reloaded.ipynb`;
  const known = await step();
  await page.notebook.save();
  for (const { data } of await saved(page, baseURL!, path)) {
    expect(data[JOB_MIME].job.state).toBe('running');
    expect(data[JOB_MIME].job.numbers.step).toBeGreaterThanOrEqual(known);
    expect(data[JOB_MIME].job.numbers.remaining_s ?? null).toBeNull();
  }

  await endAll(page, `${baseURL}/`);
  await expect(view.locator('.mnt-head')).toContainText('canceled');
  const last = await step();
  await page.notebook.save();
  const outputs = await saved(page, baseURL!, path);
  expect(outputs).toHaveLength(2);
  outputs.forEach(output => expectEnd(output, last));
  await shot(page, 'saved-after-reload');

  // The end is there: a later save changes nothing.
  await execute(page, 'notebook:clear-all-cell-outputs');
  await page.notebook.save();
  expect(await saved(page, baseURL!, path)).toEqual([]);
});

test('a job that ended while the page was away, its kernel restarted, has ended in the file', async ({
  page,
  tmpPath,
  baseURL
}) => {
  const view = await launchFromCell(page, 'away.ipynb', ENDLESS);
  const step = async () => Number(await view.getAttribute('data-mnt-step'));
  await expect.poll(step, { timeout: 90_000 }).toBeGreaterThan(2);
  await restartKernel(page);
  await page.notebook.save();
  const known = await step();
  await page.evaluate(() => window.location.assign('about:blank'));
  await page.waitForURL('about:blank');
  await endAll(page, `${baseURL}/`);

  await page.goBack();
  const again = page.locator('.jp-OutputArea-output .mnt-live').last();
  await expect(again.locator('.mnt-head')).toContainText('canceled', {
    timeout: 60_000
  });
  await expect.poll(() => isDirty(page)).toBe(true);
  await execute(page, 'docmanager:save');
  const [output] = await saved(page, baseURL!, `${tmpPath}/away.ipynb`);
  expectEnd(output, known);

  // Opened once more there is nothing new.
  await reload(page);
  await expect(again.locator('.mnt-head')).toContainText('canceled', {
    timeout: 60_000
  });
  expect(await isDirty(page)).toBe(false);
});
