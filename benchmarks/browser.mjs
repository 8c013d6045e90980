// Live view of 64 replayed ranks, its cost for the page: sample to pixel p95 ≤ 1.5 s, heap growth
// < 10 MB in 30 minutes, no request leaves the machine. Frames are timed, too.
// Usage: node benchmarks/browser.mjs [--minutes 30] [--nodes 8] [--ranks 64] [--json FILE]
// (after scripts/test or scripts/labextension --tools)

import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const require = createRequire(path.join(root, 'labextension/ui-tests/package.json'));
const { chromium } = require('@playwright/test');

const LIMIT_LATENCY_S = 1.5;
const LIMIT_GROWTH_MB = 10;
const WARM_UP_S = 60;
const PORT = 28900;

function option(name, fallback) {
  const at = process.argv.indexOf(name);
  return at < 0 ? fallback : process.argv[at + 1];
}

const minutes = Number(option('--minutes', '30'));
const file = option('--json', null);
const output = mkdtempSync(path.join(tmpdir(), 'mntrain-browser-'));
const servers = spawn(
  path.join(root, '.venv/bin/python'),
  [
    ...['-m', 'tests.ui.serve', '--port', String(PORT), '--output', path.join(output, 'servers')],
    ...['--nodes', option('--nodes', '8'), '--ranks', option('--ranks', '64')]
  ],
  { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] }
);
await new Promise((resolve, reject) => {
  servers.stdout.on('data', text => String(text).includes('ready') && resolve());
  servers.on('exit', code => reject(new Error(`the servers ended: ${code}`)));
});

const url = `http://127.0.0.1:${PORT + 3}`;
const browser = await chromium.launch({
  executablePath:
    process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/google-chrome'].find(existsSync),
  args: [
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync'
  ]
});
let failed = false;
try {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
  const foreign = [];
  page.on('request', request => {
    const { hostname, protocol } = new URL(request.url());
    if (protocol.startsWith('http') && hostname !== '127.0.0.1') {
      foreign.push(request.url());
    }
  });
  await page.goto(`${url}/lab`);
  await page.waitForFunction(() => window.jupyterapp?.started);
  let jobs = [];
  while (jobs.length === 0) {
    // The server part begins to look for nodes when the first page asks.
    await page.waitForTimeout(500);
    jobs = await (await page.request.get(`${url}/mntrain/v1/jobs`)).json();
  }
  const jobId = jobs[0].job_id;
  await page.evaluate(async id => {
    await window.jupyterapp.restored;
    await window.jupyterapp.commands.execute('mntrain:attach', { jobId: id });
  }, jobId);
  const view = page.locator('.mnt-live[data-mnt-step]').first();
  await view.waitFor();
  // When the page shows a step, against when the ranks say they finished it: one clock, one machine.
  await view.evaluate(node => {
    window.shown = {};
    new MutationObserver(() => {
      window.shown[node.dataset.mntStep] ??= Date.now() / 1000;
    }).observe(node, { attributes: true, attributeFilter: ['data-mnt-step'] });
  });
  // From one frame to the next: 16.7 ms unless the page was busy.
  await page.evaluate(() => {
    window.frames_ms = [];
    let last;
    const frame = now => {
      if (last !== undefined) {
        window.frames_ms.push(now - last);
      }
      last = now;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  const client = await page.context().newCDPSession(page);
  const heap = async () => {
    await client.send('HeapProfiler.collectGarbage');
    await client.send('HeapProfiler.collectGarbage');
    return (await client.send('Runtime.getHeapUsage')).usedSize / 1e6;
  };
  await page.waitForTimeout(WARM_UP_S * 1000);
  const sizes = [await heap()];
  await page.evaluate(() => {
    window.frames_ms.length = 0;
    window.shown = {};
  });
  for (let minute = 0; minute < minutes; minute++) {
    await page.waitForTimeout(60_000);
    sizes.push(await heap());
    console.log(`minute ${minute + 1}: ${sizes.at(-1).toFixed(1)} MB`);
  }
  const [shown, frames] = await page.evaluate(() => [window.shown, window.frames_ms]);
  const series = await (
    await page.request.get(`${url}/mntrain/v1/jobs/${jobId}/metrics?points=100000`)
  ).json();
  const ended = new Map(series.job.step.map((step, i) => [String(step), series.job.time_s[i]]));
  const latencies = Object.entries(shown)
    .filter(([step]) => ended.has(step))
    .map(([step, at]) => at - ended.get(step))
    .sort((a, b) => a - b);
  const p95 = latencies[Math.floor(latencies.length * 0.95)];
  const growth = sizes.at(-1) - sizes[0];
  console.log(`sample to pixel: p95 ${p95.toFixed(2)} s of ${latencies.length} steps (limit ${LIMIT_LATENCY_S})`);
  console.log(`heap: ${growth.toFixed(1)} MB more after ${minutes} min (limit ${LIMIT_GROWTH_MB})`);
  frames.sort((a, b) => a - b);
  const at = share => frames[Math.floor(frames.length * share)].toFixed(0);
  const slow = frames.filter(one => one > 100).length;
  console.log(
    `frames: median ${at(0.5)} ms, p95 ${at(0.95)} ms, p99 ${at(0.99)} ms, ` +
      `longest ${frames.at(-1).toFixed(0)} ms; ${slow} of ${frames.length} above 100 ms`
  );
  console.log(`requests to other hosts: ${foreign.length}`);
  failed = p95 > LIMIT_LATENCY_S || growth > LIMIT_GROWTH_MB || foreign.length > 0;
  if (file) {
    writeFileSync(file, JSON.stringify({ p95, growth, sizes, foreign, latencies, frames }) + '\n');
  }
} finally {
  await browser.close();
  servers.kill('SIGTERM');
}
process.exitCode = failed ? 1 : 0;
