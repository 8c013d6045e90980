/** The page says what the terminal says of recorded jobs, digit for digit. */

import { execFileSync } from 'child_process';
import * as path from 'path';

import type { Locator, Page } from '@playwright/test';

import { execute, openSidebar, shot } from './helpers';
import { expect, test } from './lab';

const ROOT = path.resolve(__dirname, '..', '..', '..');
const PYTHON = path.join(ROOT, '.venv', 'bin', 'python');
const port = Number(process.env.UI_PORT);

type Texts = Record<string, string>;

/** What stdout and matplotlib say of a recording. */
interface ISaid {
  job: string;
  json: Record<string, any>;
  headline: Texts;
  ranks: Record<string, Texts>;
  links: Texts[];
  missing: Texts;
  notFinite: string;
  labels: Record<string, Texts>;
}

/** Waits for what it expects; one job that differs does not hide the next. */
const soon = expect.configure({ soft: true });

test.use({ baseURL: `http://127.0.0.1:${port + 4}` });

test('page, CSV, terminal and picture agree on every recorded job', async ({
  page
}) => {
  test.setTimeout(480_000);
  const told: Record<string, ISaid> = JSON.parse(
    execFileSync(PYTHON, ['-m', 'tests.metrics.agreement.surfaces'], {
      cwd: ROOT,
      encoding: 'utf8'
    })
  );
  expect(Object.keys(told).length).toBeGreaterThan(15);
  await page.setViewportSize({ width: 1600, height: 1400 });
  const sidebar = await openSidebar(page);
  await sidebar.getByRole('button', { name: /^Show all/ }).click();
  for (const [name, said] of Object.entries(told)) {
    await test.step(name, async () => {
      await execute(page, 'mntrain:attach', { jobId: said.job });
      const view = page.locator('.mnt-live').filter({ hasText: said.job });
      await expect(view.locator('.mnt-numbers')).toBeVisible();
      // Charts are drawn once the page has told how wide it is.
      await expect(
        view.locator('.mnt-chart-labels tspan').last()
      ).toBeAttached();
      // Its history arrives in parts: figures follow the first of them.
      await soon.poll(() => headline(view), name).toEqual(said.headline);
      await checkAlarm(view, said);
      await soon
        .poll(() => reasons(view), name)
        .toEqual(expect.arrayContaining(reasonsOf(said)));
      for (const [title, labels] of Object.entries(said.labels)) {
        await soon
          .poll(() => chartLabels(view, title), `${name}: ${title}`)
          .toMatchObject(named(labels));
      }
      await checkSidebar(sidebar, name, said);
      if (['diverged', 'many'].includes(name)) {
        await shot(view, `agreement-${name}`);
      }
      await view.getByRole('button', { name: 'Table' }).click();
      await soon.poll(() => rankRows(view), name).toEqual(said.ranks);
      await soon.poll(() => linkRows(view), name).toEqual(linksOf(said));
      await soon
        .poll(async () => roughly(await copied(page, view)), name)
        .toMatchObject(roughly(csvOf(said)));
      await execute(page, 'application:close');
    });
  }
});

/** Label and value of every figure above the charts. */
async function headline(view: Locator): Promise<Texts> {
  return pairs(
    await view
      .locator('.mnt-numbers > div')
      .evaluateAll(all =>
        all.map(one => [
          one.querySelector('dt')!.textContent!,
          one.querySelector('dd')!.textContent!
        ])
      )
  );
}

/** How often a loss was NaN or infinite: in red, below the name and next to the chart. */
async function checkAlarm(view: Locator, said: ISaid): Promise<void> {
  const alarms = view.locator(
    '.mnt-facts .mnt-alarm, .mnt-chart-title .mnt-alarm'
  );
  const texts = async () =>
    (await alarms.allTextContents()).map(text => text.trim());
  await soon
    .poll(texts, said.job)
    .toEqual(said.notFinite ? [said.notFinite, said.notFinite] : []);
}

/** Why figures above the charts are n/a. */
async function reasons(view: Locator): Promise<string[]> {
  return view
    .locator('.mnt-numbers .mnt-absent')
    .evaluateAll(all => all.map(one => (one as HTMLElement).title));
}

function reasonsOf(said: ISaid): string[] {
  return Object.values(said.missing);
}

/** Names and values at the ends of a chart's lines. */
async function chartLabels(view: Locator, title: string): Promise<Texts> {
  const chart = view.locator('.mnt-chart').filter({
    has: view.page().locator('.mnt-chart-title .b', {
      hasText: new RegExp(`^${title}$`)
    })
  });
  return pairs(
    await chart.locator('.mnt-chart-labels text').evaluateAll(all =>
      all
        .filter(one => one.querySelector('tspan'))
        .map(one => {
          const value = one.querySelector('tspan')!.textContent!;
          return [one.textContent!.replace(value, '').trim(), value];
        })
    )
  );
}

/** The picture writes "r9 slowest" where the page has "r9". */
function named(labels: Texts): Texts {
  return pairs(
    Object.entries(labels).map(([name, value]) => [name.split(' ')[0], value])
  );
}

async function checkSidebar(
  sidebar: Locator,
  name: string,
  said: ISaid
): Promise<void> {
  const job = sidebar.locator('.mnt-job').filter({
    has: sidebar.page().locator('.mnt-name', {
      hasText: new RegExp(`^${name}$`)
    })
  });
  const { 'tok/s': rate, 'job MFU': mfu, loss, evaluation } = said.headline;
  const words = [`${rate} tok/s, MFU ${mfu}, loss ${loss}`];
  if (evaluation) {
    words.push(`evaluation ${evaluation}`);
  }
  for (const text of [...words, said.notFinite]) {
    await expect.soft(job, name).toContainText(text);
  }
}

/** Cells of the table whose caption begins like this, by column. */
async function table(view: Locator, caption: string): Promise<Texts[]> {
  return view
    .locator('.mnt-tables table')
    .filter({ hasText: caption })
    .evaluateAll(tables =>
      tables.flatMap(one => {
        const texts = (row: Element, cell: string) =>
          [...row.querySelectorAll(cell)].map(each => each.textContent!);
        const names = texts(one.querySelector('thead')!, 'th');
        return [...one.querySelectorAll('tbody tr')].map(row =>
          Object.fromEntries(
            texts(row, 'th, td').map((text, i) => [names[i], text])
          )
        );
      })
    );
}

async function rankRows(view: Locator): Promise<Record<string, Texts>> {
  const rows = await table(view, 'Ranks');
  return Object.fromEntries(
    rows.map(row => {
      const { 'tok/s': rate, pace, MFU, computing, memory } = row;
      return [`r${row.rank}`, { 'tok/s': rate, pace, MFU, computing, memory }];
    })
  );
}

async function linkRows(view: Locator): Promise<string[][]> {
  return (await table(view, 'Links')).map(row => [
    `${row.node} ${row.interface}`,
    row.direction,
    row.rate,
    row.used,
    row['of capacity'].replace('n/a', 'not measured')
  ]);
}

function linksOf({ links }: ISaid): string[][] {
  return links.map(row => [
    row.link,
    row.direction,
    row.rate,
    row.used,
    row['of capacity']
  ]);
}

/** The recent figures in what "Copy everything as CSV" copies: of the job, and of each rank. */
async function copied(
  page: Page,
  view: Locator
): Promise<Record<string, Texts>> {
  await page.evaluate(() => navigator.clipboard.writeText(''));
  await view.getByRole('button', { name: /Export/ }).click();
  await page.getByRole('menuitem', { name: 'Copy everything as CSV' }).click();
  const read = () => page.evaluate(() => navigator.clipboard.readText());
  await expect.poll(read).not.toBe('');
  const [head, ...rows] = (await read())
    .trim()
    .split('\n')
    .map(line => line.split(','));
  return Object.fromEntries(
    rows
      .filter(([kind]) => kind === 'recent')
      .map(row => [
        row[1],
        Object.fromEntries(row.map((text, i) => [head[i], text]))
      ])
  );
}

/** The same figures as `--json` has them, all digits. */
/**
 * A job's rates to three digits: over all attempts its steps end with the last rank that is known, and
 * a node that was lost has its steps for itself.
 */
function roughly(rows: Record<string, Texts>): Record<string, Texts> {
  const { tokens_per_s: tokens, mfu } = rows.job;
  const rough = (text: string) => text && Number(text).toPrecision(3);
  return {
    ...rows,
    job: { ...rows.job, tokens_per_s: rough(tokens), mfu: rough(mfu) }
  };
}

function csvOf({ json }: ISaid): Record<string, Texts> {
  const figures = (from: Record<string, any>, names: string[]) =>
    Object.fromEntries(names.map(name => [name, String(from[name] ?? '')]));
  const ofRank = [
    'tokens_per_s',
    'pace_tokens_per_s',
    'mfu',
    'compute',
    'wait'
  ];
  const ofJob = ['step', 'step_s', 'tokens_per_s', 'mfu', 'bubble', 'loss'];
  return Object.fromEntries([
    ['job', figures(json, ofJob)],
    ...json.ranks.map((rank: any) => [String(rank.rank), figures(rank, ofRank)])
  ]);
}

function pairs(of: string[][]): Texts {
  return Object.fromEntries(of);
}
