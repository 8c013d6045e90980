import { ServerConnection } from '@jupyterlab/services';
import { cleanup, render, screen } from '@testing-library/react';
import * as React from 'react';

import { Api } from '../api';
import { serverClock } from '../clock';
import * as formats from '../formats';
import { durationOf } from '../runs/run';
import { Cluster } from '../sidebar/cluster';
import { context } from './context';
import { job } from './samples';

const HOUR_S = 3600;

/** By the server's clock, with a part of a second that a Date header does not have. */
const NOW_S = 1_700_000_000.7;

/** Have the server answer a computer whose clock is ahead by so many seconds. */
async function answered(ahead: number, took = 0.02): Promise<void> {
  jest.setSystemTime(1000 * (NOW_S + ahead));
  const settings = ServerConnection.makeSettings({
    fetch: async () => {
      const date = new Date(1000 * NOW_S).toUTCString();
      jest.setSystemTime(1000 * (NOW_S + ahead + took));
      return new Response('{}', { headers: { Date: date } });
    }
  });
  await new Api(settings).status();
}

const aged = (seconds: number) =>
  formats.capacity([
    { bytes_per_s: 1e6, source: 'measured', time_s: NOW_S - seconds }
  ]);

beforeEach(() => {
  jest.useFakeTimers();
  serverClock.aheadS = 0;
});

afterEach(() => {
  cleanup();
  jest.useRealTimers();
});

test.each([HOUR_S, -HOUR_S, 86_400, 30])(
  'times of a computer whose clock is off by %d s are those of the server',
  async ahead => {
    await answered(ahead);
    expect(Math.abs(serverClock.now() - NOW_S)).toBeLessThan(1);
    expect(aged(300)).toContain('measured 5\u00a0min ago');
    const running = { ...job(), submitted_s: NOW_S - 120, parts: [] };
    running.numbers = { ...running.numbers, elapsed_s: null };
    const seconds = durationOf([running], serverClock.now());
    expect(Math.abs(seconds! - 120)).toBeLessThan(1);
  }
);

test.each([0, 0.2, -0.2])(
  'a clock that is right, as far as can be known, stays as it is: %d s',
  async ahead => {
    await answered(ahead);
    expect(Math.abs(serverClock.aheadS)).toBeLessThan(0.5);
    render(<Cluster {...context().props} />);
    expect(screen.queryByText(/clock/)).toBeNull();
  }
);

test('an answer that took long takes nothing from what is known', async () => {
  await answered(HOUR_S);
  const known = serverClock.aheadS;
  await answered(HOUR_S, 40);
  expect(serverClock.aheadS).toBe(known);
});

test.each([
  [HOUR_S, /clock is 1.h 00.min ahead of the Jupyter server/],
  [-90, /clock is 1.min 30.s behind the Jupyter server/]
])('a clock that is off by %d s is said, once', async (ahead, words) => {
  await answered(ahead);
  render(<Cluster {...context().props} />);
  expect(screen.getAllByText(words)).toHaveLength(1);
});

test('a clock that was set since the last answer is noticed', async () => {
  await answered(HOUR_S);
  expect(serverClock.hasJumped).toBe(false);
  jest.advanceTimersByTime(60_000);
  expect(serverClock.hasJumped).toBe(false);
  jest.setSystemTime(Date.now() - 1000 * HOUR_S);
  expect(serverClock.hasJumped).toBe(true);
  await answered(0);
  expect(serverClock.hasJumped).toBe(false);
  expect(Math.abs(serverClock.now() - NOW_S)).toBeLessThan(1);
});
