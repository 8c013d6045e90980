/** Pointing at the charts of a live view: zoom, pan, pointer, axes, by mouse and by keys. */

import { readFileSync, writeFileSync } from 'fs';
import * as path from 'path';

import type { Locator, Page } from '@playwright/test';

import {
  execute,
  expectAccessible,
  expectNoSideways,
  reload,
  SCREENS,
  shot
} from './helpers';
import { expect, test } from './lab';

const port = Number(process.env.UI_PORT);
const recorded = `http://127.0.0.1:${port + 4}`;
const replay = `http://127.0.0.1:${port + 3}`;

/** The view of one of a server's jobs, as a tab. */
async function open(page: Page, base: string, name?: string): Promise<Locator> {
  let found: any;
  // A server that has just started has not heard of them yet.
  await expect
    .poll(async () => {
      const answer = await page.request.get(`${base}/mntrain/v1/jobs`);
      const all = await answer.json();
      found = all.find((one: any) => !name || one.name === name);
      return found !== undefined;
    })
    .toBe(true);
  await execute(page, 'mntrain:attach', { jobId: found.job_id });
  const view = page.locator('.mnt-live').filter({ hasText: found.job_id });
  await expect(view.locator('.mnt-chart-labels tspan').last()).toBeAttached();
  if (name) {
    await settled(view);
  }
  return view;
}

/** Until the rows of a job that has ended are all there: they arrive in parts, and charts grow with them. */
async function settled(view: Locator): Promise<void> {
  const look = async () =>
    JSON.stringify([await span(view), await view.boundingBox()]);
  await expect(async () => {
    const before = await look();
    await view.page().waitForTimeout(500);
    expect(await look()).toBe(before);
  }).toPass({ timeout: 60_000 });
}

async function span(view: Locator): Promise<[number, number]> {
  return view
    .locator('.mnt-charts')
    .evaluate(node => [
      Number((node as HTMLElement).dataset.from),
      Number((node as HTMLElement).dataset.to)
    ]);
}

/** What a view shows once that is something else than it was. */
async function changed(
  view: Locator,
  before: [number, number]
): Promise<[number, number]> {
  await expect.poll(() => span(view)).not.toEqual(before);
  return span(view);
}

/** Page coordinates of a share, 0..1, of what a chart plots. */
async function at(view: Locator, chart: number, share: number) {
  const body = view.locator('.mnt-chart-body').nth(chart);
  await body.scrollIntoViewIfNeeded();
  const box = (await body.locator('.u-over').boundingBox())!;
  return { x: box.x + share * box.width, y: box.y + box.height / 2 };
}

async function drag(
  page: Page,
  view: Locator,
  chart: number,
  shares: [number, number]
): Promise<void> {
  const [from, to] = [
    await at(view, chart, shares[0]),
    await at(view, chart, shares[1])
  ];
  await page.mouse.move(from.x, from.y);
  await page.mouse.down();
  await page.mouse.move((from.x + to.x) / 2, from.y);
  await page.mouse.move(to.x, to.y);
}

/** Where each chart draws the pointer. */
async function pointers(view: Locator): Promise<number[]> {
  return view
    .locator('.mnt-pointer')
    .evaluateAll(all => all.map(one => Number((one as SVGElement).dataset.x)));
}

test.describe('of a recorded job', () => {
  test.use({ baseURL: recorded });

  test('a drag over any chart zooms all of them, and back', async ({
    page
  }) => {
    await page.setViewportSize({ width: 1440, height: 1200 });
    const view = await open(page, recorded, 'many');
    const whole = await span(view);
    const within = async (share: number) =>
      whole[0] + share * (whole[1] - whole[0]);

    await drag(page, view, 2, [0.7, 0.3]);
    await expect(view.locator('.mnt-chart-body .mnt-selected')).toHaveCount(
      await view.locator('.mnt-chart-body').count()
    );
    await page.keyboard.press('Escape');
    await page.mouse.up();
    await expect.poll(() => span(view)).toEqual(whole);

    await drag(page, view, 2, [0.7, 0.3]);
    await page.mouse.up();
    const tolerance = 0.01 * (whole[1] - whole[0]);
    const zoomed = await changed(view, whole);
    expect(Math.abs(zoomed[0] - (await within(0.3)))).toBeLessThan(tolerance);
    expect(Math.abs(zoomed[1] - (await within(0.7)))).toBeLessThan(tolerance);
    await page.mouse.move(5, 5);
    await expectAccessible(page, '.mnt-live');
    await shot(view, 'charts-zoomed-1440-light');

    const start = view.getByRole('slider', { name: /Start/ });
    await start.focus();
    await page.keyboard.press('ArrowRight');
    const narrower = await changed(view, zoomed);
    expect(narrower[0]).toBeGreaterThan(zoomed[0]);
    expect(narrower[1]).toBe(zoomed[1]);
    await page.keyboard.down('Shift');
    await drag(page, view, 0, [0.6, 0.4]);
    await page.mouse.up();
    await page.keyboard.up('Shift');
    const panned = await changed(view, narrower);
    expect(panned[0]).toBeGreaterThan(narrower[0]);
    expect(panned[1] - panned[0]).toBeCloseTo(narrower[1] - narrower[0], 3);

    const middle = await at(view, 0, 0.5);
    await page.mouse.dblclick(middle.x, middle.y);
    await expect.poll(() => span(view)).toEqual(whole);
    await expect(view.getByRole('slider')).toHaveCount(0);
  });

  test('keys point, select, zoom and reset; the axis is remembered', async ({
    page
  }) => {
    await page.setViewportSize({ width: 1000, height: 1200 });
    let view = await open(page, recorded, 'many');
    await view.getByLabel('Axis').selectOption('step');
    const whole = await span(view);
    await view.locator('.mnt-charts').focus();
    await page.keyboard.press('Home');
    for (let i = 0; i < 3; i++) {
      await page.keyboard.press('ArrowRight');
    }
    const flag = view.locator('.mnt-flag');
    await expect(flag).toContainText(`step ${whole[0] + 3}`);
    expect(new Set(await pointers(view))).toEqual(new Set([whole[0] + 3]));
    await page.keyboard.press('Shift+ArrowRight');
    await page.keyboard.press('Shift+ArrowRight');
    await page.keyboard.press('Enter');
    await expect.poll(() => span(view)).toEqual([whole[0] + 3, whole[0] + 5]);
    await page.keyboard.press('0');
    await expect.poll(() => span(view)).toEqual(whole);

    await view.getByLabel('Axis').selectOption('tokens');
    const tokens = await changed(view, whole);
    expect(tokens[1] / tokens[0]).toBeCloseTo(whole[1] / whole[0], 6);
    await reload(page as any);
    view = await open(page, recorded, 'many');
    await expect(view.getByLabel('Axis')).toHaveValue('tokens');
    await expect.poll(() => span(view)).toEqual(tokens);
    await view.getByLabel('Axis').selectOption('time');
  });
});

/** Use an item of the export menu; the file that comes, as bytes. */
async function exported(
  page: Page,
  view: Locator,
  item: string
): Promise<{ name: string; bytes: Buffer }> {
  const coming = page.waitForEvent('download');
  await view.getByRole('button', { name: /Export/ }).click();
  await page.getByRole('menuitem', { name: item }).click();
  const file = await coming;
  return {
    name: file.suggestedFilename(),
    bytes: readFileSync(await file.path())
  };
}

test.describe('what is told and taken away', () => {
  test.use({ baseURL: recorded });

  for (const [width, theme] of [
    [1440, 'light'],
    [1000, 'dark']
  ] as const) {
    test(`CSV, picture and events of ${width} pixels, ${theme}`, async ({
      page
    }) => {
      await page.setViewportSize({ width, height: 1200 });
      if (theme === 'dark') {
        await page.theme.setDarkTheme();
      }
      const view = await open(page, recorded, 'many');
      await view.getByLabel('Smoothing').selectOption('0.9');
      await view.getByLabel('Axis').selectOption('step');
      const csv = await exported(page, view, 'Download everything as CSV');
      expect(csv.name).toMatch(/^many-j-[0-9a-f]{8}\.csv$/);
      const [head, ...rows] = csv.bytes
        .toString()
        .trim()
        .split('\n')
        .map(line => line.split(','));
      await expect(view.getByRole('status').last()).toContainText(
        `${rows.length} rows`
      );
      const of = (kind: string, rank?: string) =>
        rows.filter(row => row[0] === kind && (!rank || row[1] === rank));
      const step = Number(await view.getAttribute('data-mnt-step'));
      expect(of('step', 'job')).toHaveLength(step);
      for (let rank = 0; rank < 10; rank++) {
        expect(of('step', String(rank))).toHaveLength(step);
      }
      expect(of('link').length).toBeGreaterThan(0);
      const last = of('step', 'job').pop()!;
      const loss = Number(last[head.indexOf('loss')]).toFixed(3);
      await expect(view.locator('.mnt-numbers')).toContainText(loss);
      expect(of('event').map(row => row[head.indexOf('event')])).toEqual(
        expect.arrayContaining(['started', 'ended'])
      );

      const picture = await exported(page, view, 'Download the charts as PNG');
      expect(picture.bytes.subarray(1, 4).toString()).toBe('PNG');
      const drawn = (await view.locator('.mnt-charts').boundingBox())!;
      expect(picture.bytes.readUInt32BE(16)).toBe(Math.ceil(drawn.width));
      await shot(view, `charts-smoothed-${width}-${theme}`);
      writeFileSync(
        path.join(SCREENS, `charts-picture-${theme}.png`),
        picture.bytes
      );

      const marks = view
        .getByRole('list', { name: 'Events' })
        .getByRole('listitem');
      await marks.last().focus();
      await expect(view.locator('.mnt-flag')).toHaveText(
        (await marks.last().getAttribute('aria-label'))!
      );
      await expectAccessible(page, '.mnt-live');
      await expectNoSideways(view);
      await view.getByRole('button', { name: 'Table' }).click();
      const ranks = view.locator('.mnt-tables table').first();
      await ranks.getByRole('button', { name: 'rank', exact: true }).click();
      await ranks.getByRole('button', { name: 'rank', exact: true }).click();
      const numbers = await ranks.locator('tbody th').allTextContents();
      expect(numbers.map(Number)).toEqual([9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
      await expect(
        ranks.getByRole('columnheader', { name: 'rank', exact: true })
      ).toHaveAttribute('aria-sort', 'descending');
      await view.getByRole('button', { name: 'Table' }).click();
      await view.getByLabel('Smoothing').selectOption('0');
      await view.getByLabel('Axis').selectOption('time');
      await page.theme.setLightTheme();
    });
  }
});

test.describe('of a running job', () => {
  test.use({ baseURL: replay });

  test('the pointers stay together, and a zoomed view stays, as rows arrive', async ({
    page
  }) => {
    const view = await open(page, replay);
    const step = async () => Number(await view.getAttribute('data-mnt-step'));
    const dots = view.locator('.mnt-dot');
    // Its first 300 steps arrive in parts. What moves below a mouse is pointed at again: they come first.
    await expect.poll(step).toBeGreaterThan(300);
    const place = await at(view, 1, 0.5);
    await page.mouse.move(place.x, place.y);
    const flag = view.locator('.mnt-flag');
    await expect(flag).toBeVisible();
    // The job's own rows come after those of its ranks.
    await expect(flag).toContainText('tokens');
    const pointed = await flag.textContent();
    const [before] = await pointers(view);
    const seen = await step();
    await expect.poll(step).toBeGreaterThan(seen + 2);
    const after = await pointers(view);
    expect(after).toHaveLength(await view.locator('.mnt-chart-body').count());
    expect(new Set(after)).toEqual(new Set([before]));
    expect(await flag.textContent()).toBe(pointed);
    // A dot is where the chart draws the line at that sample.
    const places = await dots.evaluateAll(all =>
      all.map(one => (one as SVGCircleElement).cx.baseVal.value)
    );
    expect(Math.max(...places) - Math.min(...places)).toBeLessThan(60);
    await page.theme.setDarkTheme();
    await page.mouse.move(place.x + 1, place.y);
    await shot(view, 'charts-pointer-dark');

    await drag(page, view, 0, [0.2, 0.6]);
    await page.mouse.up();
    await expect(view.getByRole('button', { name: 'All steps' })).toBeVisible();
    const zoomed = await span(view);
    const then = await step();
    await expect.poll(step).toBeGreaterThan(then + 2);
    await expect.poll(() => span(view)).toEqual(zoomed);
    await view.getByRole('button', { name: 'Go to now' }).click();
    await expect
      .poll(async () => (await span(view))[1])
      .toBeGreaterThan(zoomed[1]);
    const now = await span(view);
    expect(now[1] - now[0]).toBeCloseTo(zoomed[1] - zoomed[0], 1);
    await view.getByRole('button', { name: 'All steps' }).click();
    await page.theme.setLightTheme();
  });
});
