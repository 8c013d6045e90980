/** What the browser tests share: how a person gets to a place, and how a picture is kept. */

import * as path from 'path';

import AxeBuilder from '@axe-core/playwright';
import { expect, type IJupyterLabPageFixture } from '@jupyterlab/galata';
import type { Locator, Page } from '@playwright/test';

export const SCREENS = path.resolve(__dirname, '..', 'test-results', 'screens');

/** Trains until it is stopped; small enough for two cores. */
export const ENDLESS = `%%mntrain launch --name endless --env OMP_NUM_THREADS=1
[model]
preset = "llama-tiny"
[pipeline]
microbatches = 4
[train]
steps = 100000
batch_size = 8`;

export const FAILING = `%%mntrain launch --name broken
import os
raise ValueError("no data on " + os.environ["MNTRAIN_NODE"])`;

/** Typed in, and so without indented lines, which the editor would indent once more. Makes a few steps; then one of its ranks does something else for ever. */
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
  await page.waitForFunction(() => (window as any).jupyterapp !== undefined);
  await page.evaluate(
    async ([id, given]) => {
      const app = (window as any).jupyterapp;
      await app.started;
      // Before the layout is back, what is opened is closed again by it.
      await app.restored;
      await app.commands.execute(id, given);
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
export async function shot(
  where: Page | Locator,
  name: string
): Promise<void> {
  await where.screenshot({ path: path.join(SCREENS, `${name}.png`) });
}

/** axe-core finds nothing serious in there. */
export async function expectAccessible(
  page: Page,
  selector: string
): Promise<void> {
  const found = await new AxeBuilder({ page: page as any })
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

/** A new notebook with an idle kernel. */
export async function newNotebook(
  page: IJupyterLabPageFixture,
  name: string
): Promise<void> {
  await page.notebook.createNew(name);
  // A cell that is run before the kernel is ready raises a dialog that swallows clicks.
  await expect(
    page.locator('.jp-NotebookPanel .jp-Notebook-ExecutionIndicator').last()
  ).toHaveAttribute('data-status', 'idle', { timeout: 60_000 });
}

/** Restart the kernel as a person does. Only with `kernels: null`: Galata answers a restart wrongly. */
export async function restartKernel(page: IJupyterLabPageFixture): Promise<void> {
  const restarted = execute(page, 'kernelmenu:restart');
  await page.locator('.jp-Dialog').getByText('Restart', { exact: true }).click();
  await restarted;
}

/** Put text into a cell and run it; does not wait for long-running cells. */
export async function runCell(
  page: IJupyterLabPageFixture,
  index: number,
  text: string
): Promise<void> {
  if (index > 0) {
    await page.notebook.addCell('code', text);
  } else {
    await page.notebook.setCell(0, 'code', text);
  }
  await page.notebook.runCell(index, true);
}

/** Load the extension and launch a job from a cell; its live view. */
export async function launchFromCell(
  page: IJupyterLabPageFixture,
  name: string,
  recipe: string
): Promise<Locator> {
  await newNotebook(page, name);
  await runCell(page, 0, '%load_ext jupyter_mntrain');
  await runCell(page, 1, recipe);
  const view = page.locator('.jp-OutputArea-output .mnt-live').last();
  await expect(view).toBeVisible({ timeout: 60_000 });
  return view;
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
