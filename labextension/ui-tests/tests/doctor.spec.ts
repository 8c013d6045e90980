/** The doctor: a tab that says what keeps nodes from training, and how to mend it. */

import { execute, expectAccessible, openSidebar, shot } from './helpers';
import { expect, test } from './lab';

/** What no machine of tests has by itself. */
const FOUND = [
  {
    check: 'disk-space',
    node: 'node2',
    level: 'stops',
    said: '0 B free',
    problem: {
      kind: 'node',
      node: 'node2',
      cause: '0 B are free at /home/ann/jobs, which is for jobs',
      fix: 'on node2: delete old runs with mntrain rm JOB --checkpoints'
    }
  },
  {
    check: 'cpu-governor',
    node: 'node1',
    level: 'slows',
    said: 'powersave',
    problem: {
      kind: 'node',
      node: 'node1',
      cause: 'its CPU governor is powersave, which keeps the frequency low',
      fix: 'on node1: sudo cpupower frequency-set -g performance'
    }
  }
];

test('a menu opens the doctor, who asks the real nodes', async ({ page }) => {
  const sidebar = await openSidebar(page);
  await expect(sidebar.locator('.mnt-node').first()).toBeVisible();
  await sidebar.getByRole('button', { name: /^More for cluster/ }).click();
  await page.getByText('Examine all nodes').click();
  const view = page.locator('.mnt-doctor');
  await expect(view.getByRole('status')).toHaveText(/2 nodes, \d+ checks/);
  await expect(view).toContainText('passed');
  await shot(view, 'doctor-real-light');
  await expectAccessible(page, '.mnt-doctor');
});

test('what is found has cause and fix, wide and narrow', async ({ page }) => {
  await page.route(/mntrain\/v1\/doctor/, async route => {
    const response = await route.fetch();
    const answer = await response.json();
    const own = ({ check, node }: (typeof FOUND)[number]) =>
      FOUND.some(one => one.check === check && one.node === node);
    const rest = answer.report.findings.filter((one: any) => !own(one));
    answer.report.findings = [...FOUND, ...rest];
    await route.fulfill({ response, json: answer });
  });
  await openSidebar(page);
  await execute(page, 'mntrain:doctor', { nodes: ['node1', 'node2'] });
  const view = page.locator('.mnt-doctor');
  await expect(view.getByText('0 B are free')).toBeVisible();
  const slow = view.getByRole('button', { name: /^may slow it down: CPU/ });
  await slow.focus();
  await page.keyboard.press('Enter');
  const command = 'Copy sudo cpupower frequency-set -g performance';
  await expect(view.getByRole('button', { name: command })).toBeVisible();
  await shot(page, 'doctor-found-light');
  await page.theme.setDarkTheme();
  await shot(page, 'doctor-found-dark');
  await expectAccessible(page, '.mnt-doctor');
  await page.setViewportSize({ width: 640, height: 900 });
  await expect(view.locator('.mnt-doctor-node:visible').first()).toHaveText(
    'node2: '
  );
  await shot(page, 'doctor-narrow-dark');
  await page.theme.setLightTheme();
  await shot(page, 'doctor-narrow-light');
});

test('a job is started to see whether it works', async ({ page }) => {
  let goOn: () => void = () => undefined;
  let isBegun = false;
  await page.route(/mntrain\/v1\/doctor\/deep/, async route => {
    expect(route.request().postDataJSON()).toEqual({ job: 'j-1' });
    if (!isBegun) {
      isBegun = true;
      const doing = 'starting the job for a first step';
      return route.fulfill({ json: { doing } });
    }
    await new Promise<void>(resolve => (goOn = resolve));
    const tried = {
      check: 'deep-step',
      node: 'node1',
      level: 'passed',
      said: '0.8 s, 1.2 GB'
    };
    const report = { nodes: ['node1'], findings: [tried], silent: {} };
    const examination = {
      report: { ...report, time_s: Date.now() / 1000, took_s: 9.1 },
      checks: [{ id: 'deep-step', title: 'First step' }]
    };
    await route.fulfill({ json: { is_over: true, doctor: examination } });
  });
  await page.route(/mntrain\/v1\/doctor(\?|$)/, async route => {
    const { report, checks } = await (
      await route.fetch({ postData: '{"nodes": []}' })
    ).json();
    await route.fulfill({ json: { report, checks } });
  });
  await openSidebar(page);
  await execute(page, 'mntrain:doctor', { jobId: 'j-1' });
  const view = page.locator('.mnt-doctor');
  await view.getByRole('button', { name: 'Try a first step' }).click();
  await expect(view.getByRole('status')).toHaveText(/first step/);
  await shot(view, 'doctor-deep-begun-light');
  await expectAccessible(page, '.mnt-doctor');
  goOn();
  await expect(view.getByRole('status')).toHaveText(/1 node, 1 check/);
  await view.getByText('1 check passed').click();
  await expect(view.getByText('0.8 s, 1.2 GB')).toBeVisible();
  await shot(view, 'doctor-deep-light');
});

test('what a node lacks is pushed to it after a question', async ({ page }) => {
  const remedy = { push: 'models:llama', source: 'node1', node: 'node2' };
  let isMended = false;
  await page.route(/mntrain\/v1\/doctor(\?|$)/, async route => {
    const response = await route.fetch();
    const answer = await response.json();
    const lacking = { ...FOUND[0], remedy };
    answer.report.findings = isMended ? [] : [lacking];
    await route.fulfill({ response, json: answer });
  });
  const states: unknown[] = [
    { doing: 'pushing models:llama to 1 node, MiB', done: 40, total: 120 },
    { is_over: true }
  ];
  let goOn: () => void = () => undefined;
  await page.route(/mntrain\/v1\/doctor\/remedy/, async route => {
    expect(route.request().postDataJSON()).toEqual(remedy);
    if (states.length === 1) {
      await new Promise<void>(resolve => (goOn = resolve));
      isMended = true;
    }
    await route.fulfill({ json: states.shift() });
  });
  await openSidebar(page);
  await execute(page, 'mntrain:doctor', { nodes: ['node1', 'node2'] });
  const view = page.locator('.mnt-doctor');
  await view.getByRole('button', { name: 'Push it from node1…' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText('Push models:llama to node2?');
  await dialog.getByRole('button', { name: 'Push' }).click();
  await expect(view.getByRole('progressbar')).toBeVisible();
  await shot(page, 'doctor-remedy-light');
  await page.theme.setDarkTheme();
  await shot(page, 'doctor-remedy-dark');
  await page.setViewportSize({ width: 640, height: 900 });
  await shot(page, 'doctor-remedy-narrow');
  await expectAccessible(page, '.mnt-doctor');
  goOn();
  await expect(view.getByRole('button', { name: /^Push it/ })).toBeHidden();
});
