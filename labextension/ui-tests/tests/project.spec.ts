/** "Run…" in the file browser, for a script of a project. */

import { mkdirSync } from 'fs';
import * as path from 'path';

import { endAll, jobs, openMenu, shot, START_MS } from './helpers';
import { expect, test } from './lab';

const port = Number(process.env.UI_PORT);

test.use({ baseURL: `http://127.0.0.1:${port + 5}` });

/** What the server serves. */
const NOTEBOOKS = path.resolve(
  __dirname,
  '../test-results/servers/second/notebooks'
);

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
    .poll(async () => (await sent())?.state, { timeout: START_MS })
    .toBe('succeeded');
  const { job_id } = await sent();
  const log = await page.request.get(`${base}mntrain/v1/jobs/${job_id}/logs`);
  expect(await log.text()).toContain('the project was sent');
  await endAll(page, base);
});
