/** What the browser tests share: how a person gets to a place, and how a picture is kept. */

import * as path from 'path';

import AxeBuilder from '@axe-core/playwright';
import type { Locator, Page } from '@playwright/test';

import { expect, type IJupyterLabPageFixture, ready } from './lab';

export const SCREENS = path.resolve(__dirname, '..', 'test-results', 'screens');

/** A job's first step, of processes that begin by importing torch, on a machine that is busy with others. */
export const START_MS = 180_000;

/** Trains until it is stopped, and saves only when asked to; small enough for two cores. */
export const ENDLESS = `%%mntrain launch --name endless --env OMP_NUM_THREADS=1
[model]
preset = "llama-tiny"
[pipeline]
microbatches = 4
[train]
steps = 100000
batch_size = 8
[checkpoint]
interval_steps = 0`;

export const FAILING = `%%mntrain launch --name broken
import os
raise ValueError("no data on " + os.environ["MNTRAIN_NODE"])`;

/** Makes a few steps; then one of its ranks does something else for ever. */
export const HANGING = `%%mntrain launch --name hangs --env OMP_NUM_THREADS=1
import time, torch, torch.distributed as dist
from jupyter_mntrain import Recorder
def shuffle_shards(): time.sleep(600)
def make(step): step == 20 and dist.get_rank() == 1 and shuffle_shards(); dist.barrier(); recorder.step(tokens=1); time.sleep(0.1)
dist.init_process_group("gloo")
recorder = Recorder()
for step in range(100): make(step)`;

/** Run one of the application's commands, as the palette does. */
export async function execute(
  page: Page,
  command: string,
  args: Record<string, unknown> = {}
): Promise<void> {
  // Before the layout is back, what is opened is closed again by it.
  await ready(page);
  await page.evaluate(
    async ([id, given]) => {
      await (window as any).jupyterapp.commands.execute(id, given);
    },
    [command, args] as const
  );
}

export async function openSidebar(page: Page): Promise<Locator> {
  await execute(page, 'mntrain:show');
  const sidebar = page.locator('.mnt-sidebar');
  await expect(sidebar).toBeVisible();
  return sidebar;
}

/** A picture for people: every one of them is to be looked at. */
export async function shot(where: Page | Locator, name: string): Promise<void> {
  await where.screenshot({ path: path.join(SCREENS, `${name}.png`) });
}

/** axe-core finds nothing serious in there. */
export async function expectAccessible(
  page: Page,
  selector: string
): Promise<void> {
  // Else it opens a page of its own for what frames of other origins tell; there are none.
  const found = await new AxeBuilder({ page: page as any })
    .setLegacyMode()
    .options({ resultTypes: ['violations'] })
    .include(selector)
    .analyze();
  const serious = found.violations.filter(one =>
    ['serious', 'critical'].includes(one.impact ?? '')
  );
  expect(
    serious.map(one => ({
      rule: one.id,
      help: one.help,
      nodes: one.nodes.map(node => `${node.html} ${node.failureSummary}`)
    }))
  ).toEqual([]);
}

/** A live view fits its room: no scroll bar below it. */
export async function expectNoSideways(view: Locator): Promise<void> {
  const surplus = () =>
    view.evaluate(node => {
      const room = node.closest<HTMLElement>('.mnt-output, .mnt-live-widget')!;
      return room.scrollWidth - room.clientWidth;
    });
  await expect.poll(surplus).toBe(0);
}

/** Reload, and do not wait for the launcher, which is not there when a notebook is open. */
export async function reload(page: IJupyterLabPageFixture): Promise<void> {
  // Galata takes this option; its type lacks it.
  await page.reload({ waitForIsReady: false } as object);
}

/** A notebook with these cells and an idle kernel, in the folder that the file browser shows. */
export async function newNotebook(
  page: IJupyterLabPageFixture,
  name: string,
  cells: string[] = ['']
): Promise<void> {
  const folder = await page.filebrowser.getCurrentDirectory();
  const path = `${folder}/${name}`;
  const content = {
    cells: cells.map((source, number) => ({
      cell_type: 'code',
      execution_count: null,
      id: `cell-${number}`,
      metadata: {},
      outputs: [],
      source
    })),
    metadata: { kernelspec: { name: 'python3', display_name: 'Python 3' } },
    nbformat: 4,
    nbformat_minor: 5
  };
  await page.contents.uploadContent(JSON.stringify(content), 'text', path);
  await execute(page, 'docmanager:open', { path });
  // A cell that is run before the kernel is ready raises a dialog that swallows clicks.
  const isReady = () =>
    page.evaluate(given => {
      const panel = (window as any).jupyterapp.shell.currentWidget;
      const session = panel?.sessionContext;
      return (
        panel?.context?.path === given &&
        panel.context.isReady === true &&
        session?.isReady === true &&
        session.session?.kernel?.status === 'idle'
      );
    }, path);
  await expect.poll(isReady).toBe(true);
}

/** Restart the kernel as a person does. */
export async function restartKernel(
  page: IJupyterLabPageFixture
): Promise<void> {
  // A notebook that was just activated becomes the current one later; until then nothing restarts.
  await expect
    .poll(() =>
      page.evaluate(() =>
        (window as any).jupyterapp.commands.isEnabled('kernelmenu:restart')
      )
    )
    .toBe(true);
  const restarted = execute(page, 'kernelmenu:restart');
  await page
    .locator('.jp-Dialog')
    .getByText('Restart', { exact: true })
    .click();
  await restarted;
}

/** Run a cell, the last one: with this text, it is a new one. Does not wait for its end. */
export async function runCell(page: Page, text?: string): Promise<void> {
  await page.evaluate(source => {
    const { shell, commands } = (window as any).jupyterapp;
    const { content } = shell.currentWidget;
    if (source !== undefined) {
      content.model.sharedModel.addCell({ cell_type: 'code', source });
    }
    content.activeCellIndex = content.widgets.length - 1;
    void commands.execute('notebook:run-cell');
  }, text);
}

/** Run all cells, one after the other; does not wait for the end of the last one. */
export async function runAll(page: Page): Promise<void> {
  await page.evaluate(async () => {
    const { shell, commands } = (window as any).jupyterapp;
    const { content } = shell.currentWidget;
    const last = content.widgets.length - 1;
    for (let index = 0; index <= last; index++) {
      content.activeCellIndex = index;
      const run = commands.execute('notebook:run-cell');
      await (index < last ? run : null);
    }
  });
}

/** Load the extension and launch a job from a cell; its live view. */
export async function launchFromCell(
  page: IJupyterLabPageFixture,
  name: string,
  recipe: string
): Promise<Locator> {
  await newNotebook(page, name, ['%load_ext jupyter_mntrain', recipe]);
  await runAll(page);
  const view = page.locator('.jp-OutputArea-output .mnt-live').last();
  await expect(view).toBeVisible();
  return view;
}

/** The menu of a file; it has "Run…" once the page has read what the folder lists. */
export async function openMenu(
  page: IJupyterLabPageFixture,
  name: string,
  runs: boolean
): Promise<Locator> {
  const item = page.locator('.jp-DirListing-item', { hasText: name });
  const menu = page.locator('.lm-Menu');
  const run = menu.locator('.lm-Menu-item:visible', { hasText: 'Run…' });
  await expect(async () => {
    await page.keyboard.press('Escape');
    await item.click({ button: 'right' });
    await expect(menu.getByText('Rename')).toBeVisible({ timeout: 2000 });
    await expect(run).toHaveCount(runs ? 1 : 0, { timeout: 500 });
  }).toPass({ timeout: 30_000 });
  return run;
}

/** The jobs as the server part tells them. */
export async function jobs(page: Page, base: string): Promise<any[]> {
  const answer = await page.request.get(`${base}mntrain/v1/jobs`);
  expect(answer.ok()).toBeTruthy();
  return answer.json();
}

/** End every job of the cluster, so that tests do not see each other's. */
export async function endAll(page: Page, base: string): Promise<void> {
  const over = ['succeeded', 'failed', 'canceled'];
  for (const job of await jobs(page, base)) {
    if (!over.includes(job.state)) {
      await page.request.post(`${base}mntrain/v1/jobs/${job.job_id}/kill`);
    }
  }
  await expect
    .poll(
      async () =>
        (await jobs(page, base)).filter(job => !over.includes(job.state)).length
    )
    .toBe(0);
}
