/** "Run…" in the file browser. */

import { mkdirSync } from 'fs';
import * as path from 'path';

import { expect, type IJupyterLabPageFixture, test } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';

import { endAll, jobs, newNotebook, runCell, shot } from './helpers';

/** What the server serves. */
const NOTEBOOKS = path.resolve(
  __dirname,
  '../test-results/servers/lab/notebooks'
);

const RECIPE = '[model]\npreset = "llama-tiny"\n[train]\nsteps = 50\n';

/** The menu of a file; it has "Run…" once the page has read what the folder lists. */
async function openMenu(
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

test('a recipe or a script runs from its menu in the file browser, other files do not', async ({
  page,
  tmpPath
}) => {
  const files = {
    "my {recipe}'s $x.toml": RECIPE,
    'pyproject.toml': '[project]\nname = "x"\n',
    'train.py': 'print(1)\n'
  };
  for (const [name, text] of Object.entries(files)) {
    await page.contents.uploadContent(text, 'text', `${tmpPath}/${name}`);
  }
  await page.filebrowser.openDirectory(tmpPath);

  const run = await openMenu(page, 'my {recipe}', true);
  await shot(page, 'files-menu');
  // By now the other one was read, too.
  await openMenu(page, 'pyproject.toml', false);
  await openMenu(page, 'my {recipe}', true);
  await run.click();
  const panel = page.locator('.mnt-panel').last();
  await expect(panel).toBeVisible({ timeout: 60_000 });
  const target = panel.getByLabel('Recipe');
  await expect(target.locator('option:checked')).toHaveText(
    "my {recipe}'s $x.toml"
  );
  await expect(panel.getByLabel('Steps')).toHaveValue('50');

  await (await openMenu(page, 'train.py', true)).click();
  await expect(page.locator('.mnt-panel')).toHaveCount(2);
  await expect(
    page.locator('.mnt-panel').last().getByLabel('Recipe').locator('option:checked')
  ).toHaveText('train.py');
  // The second cell does not load once more.
  await expect(page.getByText('already loaded')).toHaveCount(0);
  await shot(page, 'files-two-panels');
});

test('the file of another folder than the notebook is found', async ({
  page,
  tmpPath
}) => {
  await page.contents.createDirectory(`${tmpPath}/runs`);
  await page.contents.uploadContent(RECIPE, 'text', `${tmpPath}/runs/small.toml`);
  await newNotebook(page, 'here.ipynb');
  await runCell(page, 0, '1 + 1');
  await page.filebrowser.openDirectory(`${tmpPath}/runs`);
  await (await openMenu(page, 'small.toml', true)).click();
  const panel = page.locator('.mnt-panel').last();
  await expect(panel.getByLabel('Recipe').locator('option:checked')).toHaveText(
    'runs/small.toml',
    { timeout: 60_000 }
  );
});

test('a script from the file browser is launched with the folder of its project', async ({
  page,
  baseURL,
  tmpPath
}) => {
  const base = `${baseURL}/`;
  const files = {
    'notes.txt': 'the project was sent',
    'scripts/train.py': 'print(open("notes.txt").read())\n'
  };
  await page.contents.createDirectory(`${tmpPath}/scripts`);
  // A repository of its own: this one's ignores all that its tests write.
  mkdirSync(path.join(NOTEBOOKS, tmpPath, '.git'));
  for (const [name, text] of Object.entries(files)) {
    await page.contents.uploadContent(text, 'text', `${tmpPath}/${name}`);
  }
  await page.filebrowser.openDirectory(`${tmpPath}/scripts`);
  await (await openMenu(page, 'train.py', true)).click();
  const panel = page.locator('.mnt-panel').last();
  await panel
    .getByRole('button', { name: 'Files and interpreter' })
    .click({ timeout: 60_000 });
  const folder = panel.getByLabel('Project folder');
  await folder.fill('no-such-folder');
  await folder.press('Enter');
  await expect(panel.getByText(/no-such-folder/).first()).toBeVisible();
  await folder.fill('..');
  await folder.press('Enter');
  // The third one is the notebook.
  await expect(panel.getByText(/^project .*: 3 files, \d+ B$/)).toBeVisible();
  await shot(panel, 'files-project-light');
  await page.theme.setDarkTheme();
  await shot(panel, 'files-project-dark');
  await page.theme.setLightTheme();
  await panel.getByRole('button', { name: 'Launch', exact: true }).click();
  const sent = async () =>
    (await jobs(page, base)).find(job => job.name === 'train');
  await expect
    .poll(async () => (await sent())?.state, { timeout: 90_000 })
    .toBe('succeeded');
  const { job_id } = await sent();
  const log = await page.request.get(`${base}mntrain/v1/jobs/${job_id}/logs`);
  expect(await log.text()).toContain('the project was sent');
  await endAll(page, base);
});
