/** A notebook from elsewhere: its jobs are shown as they were saved, and nothing in it runs. */

import {
  expect,
  type IJupyterLabPageFixture,
  test
} from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';

import { endAll, ENDLESS, expectNoSideways, launchFromCell, shot } from './helpers';

const JOB_MIME = 'application/vnd.mntrain.job+json';

/** A notebook on the server, and the job that is saved in it. */
class SavedNotebook {
  constructor(
    readonly page: IJupyterLabPageFixture,
    readonly baseURL: string,
    readonly folder: string,
    readonly name: string
  ) {}

  async content(): Promise<any> {
    const path = `${this.baseURL}/api/contents/${this.folder}/${this.name}`;
    return (await (await this.page.request.get(path)).json()).content;
  }

  /** How many steps of the job it holds. */
  async steps(): Promise<number> {
    const { cells } = await this.content();
    const output = cells
      .flatMap((cell: any) => cell.outputs ?? [])
      .find(hasJob);
    return output.data[JOB_MIME].series.job?.step?.length ?? 0;
  }

  /** Open a copy with another job in it, and a source that nobody here has run. */
  async openAs(
    name: string,
    change: (bundle: any) => void
  ): Promise<Locator> {
    const { page, folder } = this;
    const book = await this.content();
    book.cells[0].source = `# ${name}`;
    for (const cell of book.cells) {
      for (const output of (cell.outputs ?? []).filter(hasJob)) {
        change(output.data[JOB_MIME]);
      }
    }
    const path = `${folder}/${name}`;
    await page.contents.uploadContent(JSON.stringify(book), 'text', path);
    await page.notebook.close();
    await page.notebook.openByPath(path);
    const shown = page.locator('.jp-OutputArea-output .mnt-live').last();
    await expect(shown).toBeVisible({ timeout: 30_000 });
    return shown;
  }
}

function hasJob(output: any): boolean {
  return output.data?.[JOB_MIME] !== undefined;
}

test.afterEach(async ({ page, baseURL }) => {
  await endAll(page, `${baseURL}/`);
});

test('a notebook from elsewhere shows its last picture, runs nothing, and says why it is not live', async ({
  page,
  tmpPath,
  baseURL
}) => {
  const view = await launchFromCell(page, 'own.ipynb', ENDLESS);
  const step = async () => Number(await view.getAttribute('data-mnt-step'));
  await expect.poll(step, { timeout: 90_000 }).toBeGreaterThan(3);
  const saved = new SavedNotebook(page, baseURL!, tmpPath, 'own.ipynb');
  // The kernel writes into the notebook every few seconds.
  const saveAndCount = async () => {
    await page.notebook.save();
    return saved.steps();
  };
  await expect.poll(saveAndCount, { timeout: 90_000 }).toBeGreaterThan(0);
  await endAll(page, `${baseURL}/`);

  const unknown = await saved.openAs('unknown.ipynb', bundle => {
    bundle.job.job_id = bundle.series.job_id = 'j-00000000';
    bundle.job.name = '<img src=x onerror="window.wasRun = true">';
  });
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

  const foreign = await saved.openAs('foreign.ipynb', bundle => {
    bundle.cluster = 'elsewhere';
    bundle.job.job_id = bundle.series.job_id = 'j-00000001';
  });
  await expect(foreign).toContainText('the job belongs to cluster elsewhere');
  await expectLabelsApart(foreign);
  await expectNoSideways(foreign);
});

/** Nothing redraws a saved view: labels must be at the ends of their lines the first time. */
async function expectLabelsApart(view: Locator): Promise<void> {
  const leaders = view.locator('.mnt-chart').first().locator('.mnt-leader');
  const starts = () =>
    leaders.evaluateAll(all =>
      all.map(one => one.getAttribute('d')!.split(' ')[1])
    );
  await expect.poll(async () => new Set(await starts()).size).toBeGreaterThan(1);
}
