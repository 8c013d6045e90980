/** The submit panel, by clicking. */

import type { Locator } from '@playwright/test';

import {
  endAll,
  execute,
  expectAccessible,
  jobs,
  newNotebook,
  openSidebar,
  restartKernel,
  runAll,
  runCell,
  shot
} from './helpers';
import { expect, type IJupyterLabPageFixture, test, VIEWPORT } from './lab';

const RECIPE = `%%writefile small.toml
[model]
preset = "llama-tiny"
[pipeline]
microbatches = 4
[train]
steps = 100000
batch_size = 8`;

test.afterEach(async ({ page, baseURL }) => {
  await endAll(page, `${baseURL}/`);
});

async function openPanel(
  page: IJupyterLabPageFixture,
  name: string
): Promise<Locator> {
  await newNotebook(page, name, [
    '%load_ext jupyter_mntrain',
    RECIPE,
    '%mntrain panel small.toml'
  ]);
  await runAll(page);
  const panel = page.locator('.mnt-panel').last();
  await expect(panel.getByText('node2').first()).toBeVisible();
  await expect(panel.getByText('checks passed').first()).toBeVisible();
  return panel;
}

test('what is wrong stands at its row, is mended by its button, and a click is answered at once', async ({
  page,
  baseURL
}) => {
  const panel = await openPanel(page, 'checks.ipynb');
  const launch = panel.getByRole('button', { name: 'Launch', exact: true });
  await expect(launch).not.toHaveAttribute('aria-disabled');

  // Where its own agent listens no rendezvous can be held.
  const nodes = await (
    await page.request.get(`${baseURL}/mntrain/v1/nodes`)
  ).json();
  const taken = Number(nodes[0].view.address.split(':')[1]);
  await panel.getByLabel('Port').fill(String(taken));
  await panel.getByLabel('Port').press('Enter');
  await expect(panel.getByText('is taken by').first()).toBeVisible();
  await panel.getByLabel('Other settings').fill('train.step=5');
  await panel.getByLabel('Other settings').press('Enter');
  await expect(panel.getByText('use steps').first()).toBeVisible();
  await expect(launch).toHaveAttribute('aria-disabled', 'true');
  await launch.focus();
  await expect(launch).toBeFocused();
  await shot(panel, 'panel-blocked');

  await panel.getByRole('button', { name: `Use ${taken + 1}` }).click();
  await expect(panel.getByLabel('Port')).toHaveValue(String(taken + 1));
  await panel.getByLabel('Other settings').fill('train.steps=5');
  await panel.getByLabel('Other settings').press('Enter');
  await panel.getByLabel('node2', { exact: true }).uncheck();
  await expect(panel.getByText('1 rank on 1 node.')).toBeVisible();
  await panel.getByRole('button', { name: 'Show commands' }).click();
  await expect(
    panel.getByText(
      `launch small.toml --member node1 --port ${taken + 1} --set train.steps=5`
    )
  ).toBeVisible();
  await shot(panel, 'panel-commands');

  await panel.getByRole('button', { name: 'Reset' }).click();
  await expect(panel.getByText('2 ranks on 2 nodes.')).toBeVisible();
  await expect(panel.getByLabel('Other settings')).toHaveValue('');

  await page.setViewportSize({ width: 760, height: 1000 });
  await shot(panel, 'panel-narrow');
  await page.setViewportSize(VIEWPORT);

  const box = panel.getByLabel('node2', { exact: true });
  const times: number[] = [];
  for (let turn = 0; turn < 10; turn++) {
    const isOn = turn % 2 === 1;
    const begun = Date.now();
    await box.setChecked(isOn);
    await panel
      .getByText(isOn ? '2 ranks on 2 nodes.' : '1 rank on 1 node.')
      .waitFor();
    times.push(Date.now() - begun);
  }
  console.log(`answered in ms: ${times.join(' ')}`);
  await runCell(page, 'import time; time.sleep(4)');
  await expect(panel.locator('.mnt-busy')).toBeVisible();
  await expect(panel.locator('.mnt-busy')).toBeHidden();
});

/** One sentence and a button; neither a dead panel nor what ipywidgets say. */
async function expectLost(page: IJupyterLabPageFixture): Promise<void> {
  await expect(page.locator('.mnt-lost-panel')).toBeVisible();
  await expect(page.locator('.mnt-lost-panel')).toHaveCount(1);
  await expect(page.locator('.mnt-panel')).toBeHidden();
  await expect(page.getByText('Error displaying widget')).toBeHidden();
  await expect(
    page
      .locator('.jupyter-widgets-disconnected, .jupyter-widgets-broken')
      .first()
  ).toBeHidden();
}

async function openAgain(page: IJupyterLabPageFixture): Promise<Locator> {
  await page.getByRole('button', { name: 'Open it again' }).click();
  const panel = page.locator('.mnt-panel');
  await expect(panel.getByText('checks passed').first()).toBeVisible();
  await expect(page.locator('.mnt-lost-panel')).toHaveCount(0);
  // It is answered: somebody listens.
  await panel.getByLabel('node2', { exact: true }).uncheck();
  await expect(panel.getByText('1 rank on 1 node.')).toBeVisible();
  return panel;
}

test('the panel launches by clicking, stops, resumes, and is opened again once its kernel has restarted', async ({
  page,
  baseURL
}) => {
  const base = `${baseURL}/`;
  const panel = await openPanel(page, 'panel.ipynb');
  await panel.getByLabel('Environment variables').fill('OMP_NUM_THREADS=1');
  await panel.getByLabel('Environment variables').press('Enter');
  await shot(panel, 'panel-light');
  await expectAccessible(page, '.mnt-panel');
  const launch = panel.getByRole('button', { name: 'Launch', exact: true });
  await launch.focus();
  await page.keyboard.press('Enter');
  await expect
    .poll(async () => (await jobs(page, base)).map(job => job.state))
    .toContain('running');
  await expect(page.locator('.mnt-live').last()).toBeVisible();
  // A view out of sight is not redrawn.
  await page.locator('.mnt-live').last().scrollIntoViewIfNeeded();
  await expect(page.locator('.mnt-live').last()).toHaveAttribute(
    'data-mnt-step',
    /[1-9]/
  );
  await shot(page, 'panel-launched');
  await page.theme.setDarkTheme();
  await shot(page, 'panel-dark');
  await expect(launch).toBeFocused();
  await panel.getByRole('button', { name: 'Stacks' }).click();
  await expect(panel.getByText(/rank 1 on node2/)).toBeVisible();
  await shot(panel, 'panel-stacks-dark');
  // Enter once too often stops nothing.
  const stop = panel.getByRole('button', { name: 'Stop…' });
  await stop.focus();
  await page.keyboard.press('Enter');
  await expect(
    panel.getByRole('button', { name: 'Keep it running' })
  ).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(stop).toBeFocused();
  await stop.click();
  await expect(
    panel.getByRole('button', { name: 'Stop without saving' })
  ).toBeVisible();
  await shot(panel, 'panel-stop-dark');
  await panel.getByRole('button', { name: 'Save, then stop' }).click();
  await expect(panel.getByText('canceled')).toBeVisible();
  await expect(panel.getByText(/Step [\d,]+ was saved/)).toBeVisible();
  // The Jupyter server hears of it by itself, a moment after the kernel.
  await expect
    .poll(async () => (await jobs(page, base))[0].state)
    .toBe('canceled');

  // The run goes on from the panel, with what is chosen there.
  await page.theme.setLightTheme();
  const first = (await jobs(page, base))[0].job_id;
  const resume = panel.getByRole('button', { name: /^Resume from step/ });
  await expect(resume).toBeVisible();
  await expect(panel).toContainText('losses will be those of an unbroken run');
  await shot(panel, 'panel-resume');
  await resume.click();
  await expect
    .poll(async () => (await jobs(page, base))[0].job_id)
    .not.toBe(first);
  const second = (await jobs(page, base))[0].job_id;
  const offer = await page.request.get(
    `${base}mntrain/v1/jobs/${second}/resume`
  );
  expect((await offer.json()).run).toBe(first);

  // A panel whose kernel has restarted says so, and is opened again by a button.
  const view = page.locator('.mnt-live');
  await expect(view.last()).toContainText(second);
  await restartKernel(page);
  await expectLost(page);
  await page.locator('.mnt-lost-panel').scrollIntoViewIfNeeded();
  await expect(view).toBeVisible();
  await shot(page, 'panel-lost');
  await expectAccessible(page, '.mnt-lost-panel');
  await openAgain(page);
  // The job that it launched runs on, in the same place.
  await expect(view).toHaveCount(1);
  await expect(view).toContainText(second);
  // Out of sight, it is not drawn.
  await view.scrollIntoViewIfNeeded();
  await expect(view).not.toHaveAttribute('data-mnt-step', '0');
  await shot(page, 'panel-opened-again');
});

test('the sidebar opens a panel in a new notebook, which says so once its kernel is gone', async ({
  page
}) => {
  await openSidebar(page);
  await execute(page, 'mntrain:launch');
  await expect(page.locator('.mnt-panel')).toBeVisible();
  await page.notebook.save();
  await execute(page, 'kernelmenu:shutdown');
  await expectLost(page);
  const name = await page.evaluate(
    () => (window as any).jupyterapp.shell.currentWidget.context.path as string
  );
  await page.notebook.close(false);
  await execute(page, 'docmanager:open', { path: name });
  await expectLost(page);
  await shot(page, 'panel-saved');
  await openAgain(page);
});
