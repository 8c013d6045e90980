/** A job's whole life in JupyterLab: launched, watched, left and met again, ended, kept in its notebook. */

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
  openSidebar,
  reload,
  restartKernel,
  runCell,
  shot,
  START_MS
} from './helpers';
import { expect, test } from './lab';
import {
  content,
  expectEnd,
  expectLabelsApart,
  isDirty,
  JOB_MIME,
  openAs,
  saved
} from './saved';

test.afterEach(async ({ page, baseURL }) => {
  await endAll(page, `${baseURL}/`);
});

test('a job launched in a cell is drawn live whatever becomes of page and kernel, and its end is in the file', async ({
  page,
  tmpPath,
  baseURL
}) => {
  const base = `${baseURL}/`;
  const path = `${tmpPath}/live.ipynb`;
  const views = page.locator('.jp-OutputArea-output .mnt-live');
  const view = views.first();
  const step = async () => Number(await view.getAttribute('data-mnt-step'));
  /** A view out of sight is not redrawn. */
  const goesOn = async () => {
    await view.scrollIntoViewIfNeeded();
    const before = await step();
    await expect.poll(step).toBeGreaterThan(before + 1);
  };

  await launchFromCell(page, 'live.ipynb', ENDLESS);
  await expect(view.locator('.mnt-head')).toContainText('running', {
    timeout: START_MS
  });
  await expect.poll(step, { timeout: START_MS }).toBeGreaterThan(3);
  await expect(view.getByText('tok/s').first()).toBeVisible();
  await expectNoSideways(view);
  await shot(page, 'live-light');
  const sidebar = await openSidebar(page);
  await expect(sidebar.getByText('endless').first()).toBeVisible();
  await shot(sidebar, 'sidebar-running-light');
  await expectAccessible(page, '.mnt-sidebar');

  await test.step('as a table and in the dark', async () => {
    await page.theme.setDarkTheme();
    await shot(page, 'live-dark');
    await expectAccessible(page, '.jp-OutputArea-output .mnt-live');
    await view.getByRole('button', { name: 'Table' }).click();
    await expect(view.getByRole('table').first()).toBeVisible();
    await shot(view, 'live-table-dark');
    await view.getByRole('button', { name: 'Table' }).click();
    await page.theme.setLightTheme();
  });

  await test.step('with its pipeline', async () => {
    await view.getByText('Schedule of one step').click();
    await expect(view.locator('.mnt-gantt .mnt-span-F').first()).toBeVisible({
      timeout: 40_000 // it asks again after 15 s
    });
    await expectNoSideways(view);
    await expectAccessible(page, '.jp-OutputArea-output .mnt-live');
  });

  await test.step('after a restart of the kernel, and in the notebook opened again', async () => {
    await page.notebook.save();
    await restartKernel(page);
    await goesOn();
    await page.notebook.save();
    await page.notebook.close();
    await execute(page, 'docmanager:open', { path });
    await goesOn();
    // From the first step on: what the server reads is the ranks' own record.
    await view.getByRole('button', { name: 'Table' }).click();
    await expect(view.getByRole('rowheader').first()).toBeVisible();
    await view.getByRole('button', { name: 'Table' }).click();
  });

  await test.step('after a reload, in both of its views', async () => {
    await runCell(page, '%load_ext jupyter_mntrain\n%mntrain attach');
    await expect(views).toHaveCount(2);
    await page.notebook.save();
    await reload(page);
    await page.locator('.jp-NotebookPanel').waitFor();
    await expect(views).toHaveCount(2);
    await goesOn();
    await shot(page, 'live-after-reload');
    // Steps alone are no reason to ask for a save.
    expect(await isDirty(page)).toBe(false);
    const known = await step();
    await page.notebook.save();
    for (const { data } of await saved(page, base, path)) {
      expect(data[JOB_MIME].job.state).toBe('running');
      expect(data[JOB_MIME].job.numbers.step).toBeGreaterThanOrEqual(known);
      expect(data[JOB_MIME].job.numbers.remaining_s ?? null).toBeNull();
    }
  });

  await test.step('after the death of the kernel', async () => {
    await execute(page, 'kernelmenu:shutdown');
    await goesOn();
    await shot(page, 'live-after-kernel-death');
  });

  const first = (await jobs(page, base))[0].job_id;
  await test.step('until it is stopped in the sidebar', async () => {
    await openSidebar(page);
    await sidebar.getByRole('button', { name: /^Stop/ }).first().click();
    await page.getByRole('button', { name: /^Stop/ }).last().click();
    await view.scrollIntoViewIfNeeded();
    await expect(view.locator('.mnt-head')).toContainText('canceled');
    expect((await jobs(page, base))[0].state).toBe('canceled');
    await shot(page, 'live-stopped');
    const last = await step();
    await page.notebook.save();
    const outputs = await saved(page, base, path);
    expect(outputs).toHaveLength(2);
    outputs.forEach(output => expectEnd(output, last));
  });

  const book = await content(page, base, path);
  await test.step('it has saved nothing, and is started over', async () => {
    const over = view.getByRole('button', { name: 'Start over…' });
    await expect(over).toBeVisible();
    await expect(over).toHaveClass(/pri/);
    await expect(view.getByRole('region', { name: 'Resume' })).toHaveCount(0);
    await shot(view, 'resume-nothing-saved-light');
    await over.click();
    const dialog = page.locator('.jp-Dialog');
    await expect(dialog).toContainText('step 1');
    await dialog
      .getByRole('button', { name: 'Start over', exact: true })
      .click();
    await expect
      .poll(async () => (await jobs(page, base))[0].job_id)
      .not.toBe(first);
    await endAll(page, base);
  });

  await test.step('outputs that were cleared stay so', async () => {
    await execute(page, 'notebook:clear-all-cell-outputs');
    await page.notebook.save();
    expect(await saved(page, base, path)).toEqual([]);
  });

  await test.step('from elsewhere it shows its last picture, runs nothing, and says why it is not live', async () => {
    const unknown = await openAs(
      page,
      tmpPath,
      'unknown.ipynb',
      book,
      bundle => {
        bundle.job.job_id = bundle.series.job_id = 'j-00000000';
        bundle.job.name = '<img src=x onerror="window.wasRun = true">';
      }
    );
    await expect(unknown).toContainText(
      'Values are from when the notebook was saved: no reachable node knows this job'
    );
    const isTrusted = await page.evaluate(() =>
      [...(window as any).jupyterapp.shell.currentWidget.model.cells].some(
        cell => cell.trusted
      )
    );
    expect(isTrusted).toBe(false);
    await expect(unknown).toContainText('<img src=x');
    expect(await page.evaluate(() => (window as any).wasRun)).toBeUndefined();
    await shot(page, 'live-untrusted');

    const foreign = await openAs(
      page,
      tmpPath,
      'foreign.ipynb',
      book,
      bundle => {
        bundle.cluster = 'elsewhere';
        bundle.job.job_id = bundle.series.job_id = 'j-00000001';
      }
    );
    await expect(foreign).toContainText('the job belongs to cluster elsewhere');
    await expectLabelsApart(foreign);
    await expectNoSideways(foreign);
  });
});

test('a failed job names its ranks and the cause first', async ({ page }) => {
  const view = await launchFromCell(page, 'failed.ipynb', FAILING);
  const card = view.getByRole('alert');
  await expect(card).toContainText(
    /all ranks: ValueError: no data on node[12] \(cell\.py, line 2\)/,
    { timeout: START_MS }
  );
  await shot(page, 'live-failed-light');
  await expectAccessible(page, '.jp-OutputArea-output .mnt-live');
  const sidebar = await openSidebar(page);
  await expect(sidebar.getByText(/no data on node/).first()).toBeVisible();
  await shot(sidebar, 'sidebar-failed-light');
  await page.theme.setDarkTheme();
  await shot(page, 'live-failed-dark');
});

test('a job that hangs says which rank and where, until it goes on', async ({
  page,
  tmpPath,
  baseURL
}) => {
  const view = await launchFromCell(page, 'hangs.ipynb', HANGING);
  const card = view.getByRole('alert');
  await expect(card).toContainText('in its own code, shuffle_shards (cell.py:', {
    timeout: START_MS
  });
  await expect(card).toContainText('Fix:');
  await card.locator('summary').last().click();
  await expect(card.locator('pre').last()).toContainText('shuffle_shards');
  await shot(page, 'live-stalled-light');
  await expectAccessible(page, '.jp-OutputArea-output .mnt-live');
  const sidebar = await openSidebar(page);
  await expect(sidebar.getByText(/in its own code, shuffle_shards/)).toBeVisible();
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

  // It ends while the page is away, its kernel restarted; its end is in the file all the same.
  await page.theme.setLightTheme();
  await execute(page, 'mntrain:show');
  await page.evaluate(name => {
    const { shell } = (window as any).jupyterapp;
    for (const widget of shell.widgets('main')) {
      if (widget.title.label === name) {
        shell.activateById(widget.id);
      }
    }
  }, 'hangs.ipynb');
  const step = async () => Number(await view.getAttribute('data-mnt-step'));
  await restartKernel(page);
  await page.notebook.save();
  const known = await step();
  await page.evaluate(() => window.location.assign('about:blank'));
  await page.waitForURL('about:blank');
  await endAll(page, `${baseURL}/`);

  await page.goBack();
  const again = page.locator('.jp-OutputArea-output .mnt-live').last();
  await expect(again.locator('.mnt-head')).toContainText('canceled');
  await expect.poll(() => isDirty(page)).toBe(true);
  await execute(page, 'docmanager:save');
  const [output] = await saved(page, `${baseURL}/`, `${tmpPath}/hangs.ipynb`);
  expectEnd(output, known);

  // Opened once more there is nothing new.
  await reload(page);
  await expect(again.locator('.mnt-head')).toContainText('canceled');
  expect(await isDirty(page)).toBe(false);
});
