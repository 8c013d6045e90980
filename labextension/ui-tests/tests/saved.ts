/** What a notebook file keeps of its jobs. */

import type { Locator } from '@playwright/test';

import { execute } from './helpers';
import { expect, type IJupyterLabPageFixture } from './lab';

export const JOB_MIME = 'application/vnd.mntrain.job+json';

/** A notebook as it stands in its file. */
export async function content(
  page: IJupyterLabPageFixture,
  base: string,
  path: string
): Promise<any> {
  const answer = await page.request.get(`${base}api/contents/${path}`);
  return (await answer.json()).content;
}

/** The outputs with jobs in a notebook file. */
export async function saved(
  page: IJupyterLabPageFixture,
  base: string,
  path: string
): Promise<any[]> {
  const { cells } = await content(page, base, path);
  return cells.flatMap((cell: any) => cell.outputs ?? []).filter(hasJob);
}

function hasJob(output: any): boolean {
  return output.data?.[JOB_MIME] !== undefined;
}

/** Open a copy of a notebook with another job in it, and a source that nobody here has run; its first view. */
export async function openAs(
  page: IJupyterLabPageFixture,
  folder: string,
  name: string,
  book: any,
  change: (bundle: any) => void
): Promise<Locator> {
  const copy = structuredClone(book);
  copy.cells[0].source = `# ${name}`;
  for (const cell of copy.cells) {
    for (const output of (cell.outputs ?? []).filter(hasJob)) {
      change(output.data[JOB_MIME]);
    }
  }
  const path = `${folder}/${name}`;
  await page.contents.uploadContent(JSON.stringify(copy), 'text', path);
  await page.notebook.close();
  await execute(page, 'docmanager:open', { path });
  const shown = page.locator('.jp-OutputArea-output .mnt-live').first();
  await expect(shown).toBeVisible();
  return shown;
}

export function expectEnd(output: any, leastStep: number): void {
  const { job, series, saved_s } = output.data[JOB_MIME];
  expect(job.state).toBe('canceled');
  expect(job.numbers.step).toBeGreaterThanOrEqual(leastStep);
  expect(job.numbers.remaining_s ?? null).toBeNull();
  expect(series.job.step.at(-1)).toBe(job.numbers.step);
  expect(output.data['text/plain']).toContain('canceled');
  expect(output.data['text/plain']).toContain(
    new Date(1000 * saved_s).getFullYear().toString()
  );
  expect(
    Buffer.from(output.data['image/png'], 'base64').length
  ).toBeGreaterThan(10_000);
  expect(JSON.stringify(output).length).toBeLessThan(400_000);
}

/** Whether the open notebook has changes that are not saved. */
export function isDirty(page: IJupyterLabPageFixture): Promise<boolean> {
  return page.evaluate(
    () => (window as any).jupyterapp.shell.currentWidget.context.model.dirty
  );
}

/** Nothing redraws a saved view: labels must be at the ends of their lines the first time. */
export async function expectLabelsApart(view: Locator): Promise<void> {
  const leaders = view.locator('.mnt-chart').first().locator('.mnt-leader');
  const starts = () =>
    leaders.evaluateAll(all =>
      all.map(one => one.getAttribute('d')!.split(' ')[1])
    );
  await expect
    .poll(async () => new Set(await starts()).size)
    .toBeGreaterThan(1);
}
