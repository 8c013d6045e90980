/** A JupyterLab for each server, loaded once for all tests of a worker and tidied between them. */

import {
  expect,
  galata,
  type IJupyterLabPageFixture,
  test as base
} from '@jupyterlab/galata';
import type { Browser, Page } from '@playwright/test';

export { expect, type IJupyterLabPageFixture };

type Lab = IJupyterLabPageFixture;

/**
 * Until the application is there, with its layout as it was.
 *
 * Asked again and again, without a promise within the page: of a page that is loaded again meanwhile, the browser
 * drops what a promise waits for, and Playwright fails with "Resulting promise was garbage collected".
 */
export async function ready(page: Page): Promise<void> {
  const isReady = () =>
    page
      .evaluate(() => {
        const all = window as any;
        if (!all.jupyterapp) {
          return false;
        }
        if (all.mntReady === undefined) {
          all.mntReady = false;
          void all.jupyterapp.restored.then(() => (all.mntReady = true));
        }
        return all.mntReady as boolean;
      })
      .catch(() => false); // between two documents
  await expect.poll(isReady, { intervals: [50], timeout: 60_000 }).toBe(true);
}

async function open(browser: Browser, baseURL: string): Promise<Lab> {
  const context = await browser.newContext({
    baseURL,
    viewport: VIEWPORT,
    reducedMotion: 'reduce',
    permissions: ['clipboard-read', 'clipboard-write']
  });
  const lab = await galata.initTestPage(
    '/lab',
    false,
    baseURL,
    true,
    { ...galata.DEFAULT_SETTINGS },
    true,
    true,
    await context.newPage(),
    // Kernels and sessions are the server's own: Galata answers a restart wrongly.
    null as any,
    null as any,
    '',
    ready as any,
    null as any,
    false
  );
  (lab as any).waitForAppStarted = () => ready(lab);
  await closeLostFolders(lab);
  await lab.goto('');
  return lab;
}

/**
 * Close JupyterLab's own dialog, whenever it is there: a page comes back in the folder that the one before it
 * showed, and the folder of a test that has ended is deleted.
 */
async function closeLostFolders(lab: Lab): Promise<void> {
  const { page } = lab as unknown as { page: Page };
  const dialog = page
    .getByRole('dialog')
    .filter({ hasText: 'Directory not found' });
  await page.addLocatorHandler(dialog, async () => {
    await dialog.getByRole('button').last().click();
  });
}

export const VIEWPORT = { width: 1400, height: 1000 };

/** As a page that has just been loaded, with the folder of the test open. */
async function tidy(lab: Lab, folder: string): Promise<void> {
  await lab.setViewportSize(VIEWPORT);
  await lab.mouse.move(5, 5);
  await lab.evaluate(async () => {
    const { shell, commands } = (window as any).jupyterapp;
    for (const kind of ['main', 'down']) {
      for (const widget of [...shell.widgets(kind)]) {
        widget.dispose();
      }
    }
    const theme = 'JupyterLab Light';
    if (document.body.dataset.jpThemeName !== theme) {
      await commands.execute('apputils:change-theme', { theme });
    }
    shell.expandLeft();
  });
  await goTo(lab, folder);
  await expect.poll(() => closeNotices(lab)).toBe(0);
  await expect(lab.locator('body')).toHaveAttribute(
    'data-jp-theme-light',
    'true'
  );
}

/** Close those that are there, and say how many: jobs of other tests end at any moment. */
async function closeNotices(lab: Lab): Promise<number> {
  return lab.evaluate(() => {
    for (const close of document.querySelectorAll<HTMLElement>(
      '.jp-Notification-Toast-Close, .Toastify__close-button'
    )) {
      close.click();
    }
    return document.querySelectorAll('.Toastify__toast').length;
  });
}

/** Have the file browser show a folder: its model is there before its path, which tests read, is shown. */
async function goTo(lab: Lab, path: string): Promise<void> {
  await lab.evaluate(
    given =>
      (window as any).jupyterapp.commands.execute('filebrowser:go-to-path', {
        path: given
      }),
    path
  );
  await expect.poll(() => lab.filebrowser.getCurrentDirectory()).toBe(path);
}

/** End the kernels of the test's notebooks. */
async function endKernels(lab: Lab, baseURL: string, folder: string) {
  const answer = await lab.request.get(`${baseURL}/api/sessions`);
  const sessions: any[] = await answer.json();
  await Promise.all(
    sessions
      .filter(({ path }) => path.startsWith(folder))
      .map(({ id }) => lab.request.delete(`${baseURL}/api/sessions/${id}`))
  );
}

export const test = base.extend<
  { isApart: boolean },
  { labs: Map<string, Lab> }
>({
  /** Whether the test has a page that no other test sees. */
  isApart: [false, { option: true }],
  labs: [
    async ({}, use) => {
      const labs = new Map<string, Lab>();
      await use(labs);
      for (const lab of labs.values()) {
        await lab.context().close();
      }
    },
    { scope: 'worker' }
  ],
  page: async ({ browser, baseURL, isApart, labs, tmpPath }, use, info) => {
    const kept = isApart ? undefined : labs.get(baseURL!);
    const lab = kept ?? (await open(browser, baseURL!));
    await tidy(lab, tmpPath);
    // What a test mocks, the next one does not see.
    const { page } = lab as unknown as { page: Page };
    const mocked: Parameters<Page['unroute']>[] = [];
    (lab as any).route = (...given: Parameters<Page['route']>) => {
      mocked.push([given[0], given[1]]);
      return page.route(...given);
    };
    await use(lab);
    await endKernels(lab, baseURL!, tmpPath);
    // A page that a test has failed in is not used again.
    if (isApart || info.status !== info.expectedStatus) {
      if (!isApart) {
        labs.delete(baseURL!);
      }
      await lab.context().close();
      return;
    }
    for (const [url, handler] of mocked) {
      await page.unroute(url, handler);
    }
    // The folder of the test will be deleted.
    await goTo(lab, '');
    labs.set(baseURL!, lab);
  }
});
