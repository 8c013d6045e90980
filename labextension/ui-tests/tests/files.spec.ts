/** "Run…" in the file browser. */

import { openMenu, shot } from './helpers';
import { expect, test } from './lab';

const RECIPE = '[model]\npreset = "llama-tiny"\n[train]\nsteps = 50\n';

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
  await expect(panel).toBeVisible();
  const target = panel.getByLabel('Recipe');
  await expect(target.locator('option:checked')).toHaveText(
    "my {recipe}'s $x.toml"
  );
  await expect(panel.getByLabel('Steps')).toHaveValue('50');

  await (await openMenu(page, 'train.py', true)).click();
  await expect(page.locator('.mnt-panel')).toHaveCount(2);
  await expect(
    page
      .locator('.mnt-panel')
      .last()
      .getByLabel('Recipe')
      .locator('option:checked')
  ).toHaveText('train.py');
  // The second cell does not load once more.
  await expect(page.getByText('already loaded')).toHaveCount(0);
  await shot(page, 'files-two-panels');

  // The file of another folder than the notebook is found.
  await page.contents.createDirectory(`${tmpPath}/runs`);
  await page.contents.uploadContent(
    RECIPE,
    'text',
    `${tmpPath}/runs/small.toml`
  );
  await page.filebrowser.openDirectory(`${tmpPath}/runs`);
  await (await openMenu(page, 'small.toml', true)).click();
  await expect(page.locator('.mnt-panel')).toHaveCount(3);
  await expect(
    page
      .locator('.mnt-panel')
      .last()
      .getByLabel('Recipe')
      .locator('option:checked')
  ).toHaveText('runs/small.toml');
});
