/** The browser tests: one set of servers for all, the system's Chromium, pictures kept. */

import * as os from 'os';
import * as path from 'path';
import { existsSync } from 'fs';

const baseConfig = require('@jupyterlab/galata/lib/playwright-config');

const root = path.resolve(__dirname, '..', '..');
const output = path.resolve(__dirname, 'test-results');
// Workers read this file again: they must agree on the ports.
process.env.UI_PORT ??= String(20000 + (process.pid % 8000));
const port = Number(process.env.UI_PORT);

const browsers = [
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome'
];

/** Files whose tests launch jobs, on one cluster and on another: each has its nodes for itself. */
const JOBS = /(lab|panel)\.spec\.ts/;
const MORE_JOBS = /(project|resume|runs)\.spec\.ts/;

export default {
  ...baseConfig,
  testDir: './tests',
  outputDir: path.join(output, 'playwright'),
  reporter: [['list']],
  timeout: 300_000,
  expect: { timeout: 60_000 },
  fullyParallel: false,
  workers: 3,
  projects: [
    // Their first steps alone take a busy machine a minute.
    { name: 'jobs', testMatch: JOBS, workers: 1, timeout: 480_000 },
    { name: 'more jobs', testMatch: MORE_JOBS, workers: 1, timeout: 480_000 },
    { name: 'pages', testIgnore: [JOBS, MORE_JOBS], workers: 1 }
  ],
  // One that passes in its second try is reported as flaky: a bug to find, not one to stop everybody.
  retries: 1,
  use: {
    ...baseConfig.use,
    baseURL: `http://127.0.0.1:${port}`,
    video: 'off',
    trace: 'off',
    screenshot: 'only-on-failure',
    viewport: { width: 1400, height: 1000 },
    contextOptions: { reducedMotion: 'reduce' },
    launchOptions: {
      executablePath:
        process.env.CHROMIUM ?? browsers.find(existsSync) ?? browsers[0],
      args: [
        ...(os.userInfo().uid === 0 ? ['--no-sandbox'] : []),
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync'
      ]
    }
  },
  webServer: {
    command: `exec "${root}/.venv/bin/python" -m tests.ui.serve --port ${port} --output "${output}/servers"`,
    cwd: root,
    url: `http://127.0.0.1:${port + 5}/api`,
    timeout: 240_000,
    stdout: 'ignore',
    stderr: 'pipe',
    gracefulShutdown: { signal: 'SIGTERM', timeout: 30_000 },
    reuseExistingServer: false
  }
};
