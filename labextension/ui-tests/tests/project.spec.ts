/** "Run…" in the file browser, for a script of a project. */

import { mkdirSync, readFileSync } from 'fs';
import * as path from 'path';

import {
  endAll,
  execute,
  expectAccessible,
  jobs,
  openMenu,
  shot,
  START_MS
} from './helpers';
import { expect, test } from './lab';

const port = Number(process.env.UI_PORT);

test.use({ baseURL: `http://127.0.0.1:${port + 5}` });

/** What the server serves. */
const NOTEBOOKS = path.resolve(
  __dirname,
  '../test-results/servers/second/notebooks'
);

/** Reads what was sent, and writes a text, a picture of 64 × 64, and much else. */
const SCRIPT = `import os, struct, zlib
print(open("notes.txt").read())
os.makedirs("plots/steps")
def part(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
rows = b"".join(b"\\0" + bytes((x * 4, y * 4, 128)[c] for x in range(64) for c in range(3)) for y in range(64))
with open("plots/loss.png", "wb") as file:
    file.write(b"\\x89PNG\\r\\n\\x1a\\n" + part(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)))
    file.write(part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))
for step in range(30):
    open(f"plots/steps/{step}.bin", "wb").write(bytes(1000 * step))
os.symlink("/etc/hostname", "away")
open("report.md", "w").write("# Report\\nthe loss fell\\n")
`;

test('a script is launched with the folder of its project, and what it wrote can be seen', async ({
  page,
  baseURL,
  tmpPath
}) => {
  const base = `${baseURL}/`;
  const files = {
    'notes.txt': 'the project was sent',
    'scripts/train.py': SCRIPT
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

  await execute(page, 'mntrain:files', { jobId: job_id });
  const tab = page.locator('.mnt-files');
  await expect(tab.getByText(/^32 files, 886\D/)).toBeVisible();
  await expect(tab.getByText('2 entries are left out')).toBeVisible();
  // What is in a folder of many is drawn once it is opened.
  const steps = tab.getByText('steps/');
  await expect(tab.getByText('29.bin')).toHaveCount(0);
  await tab.getByText('plots/').click();
  await steps.click();
  await expect(tab.getByText('29.bin')).toHaveCount(2);
  await steps.click();
  await tab.getByRole('button', { name: 'report.md', exact: true }).first().click();
  await expect(tab.getByText('the loss fell')).toBeVisible();
  await shot(tab, 'job-files-text-light');
  await tab.getByRole('button', { name: 'loss.png', exact: true }).last().click();
  const picture = tab.getByRole('img', { name: 'plots/loss.png' });
  const width = () =>
    picture.evaluate((image: HTMLImageElement) => image.naturalWidth);
  await expect.poll(width).toBe(64);
  await expectAccessible(page, '.mnt-files');
  await shot(tab, 'job-files-picture-light');
  await page.theme.setDarkTheme();
  await shot(tab, 'job-files-picture-dark');
  await page.theme.setLightTheme();
  const begun = page.waitForEvent('download');
  await tab.getByRole('button', { name: 'Download report.md of node2' }).click();
  const download = await begun;
  expect(download.suggestedFilename()).toBe('report.md');
  expect(readFileSync(await download.path(), 'utf-8')).toContain('fell');
  await endAll(page, base);
});
