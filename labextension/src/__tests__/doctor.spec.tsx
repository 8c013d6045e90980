import {
  cleanup,
  fireEvent,
  render,
  screen,
  waitFor,
  within
} from '@testing-library/react';
import * as React from 'react';

import { reportText, rowsOf, splitFix } from '../doctor/report';
import { DoctorView } from '../doctor/view';
import type { DoctorAnswer, Finding, WorkState } from '../schema';
import { Cluster } from '../sidebar/cluster';
import { CommandIDs, RequestError } from '../tokens';
import { context } from './context';

const CHECKS = [
  { id: 'clock', title: 'Clock' },
  { id: 'disk', title: 'Free disk' },
  { id: 'names', title: 'Names' },
  { id: 'paths', title: 'Writable folders' }
];

function finding(
  check: string,
  node: string,
  level: Finding['level'],
  said: string,
  fix = ''
): Finding {
  const problem = {
    kind: 'node',
    cause: `${check} is bad`,
    node,
    fix
  } as const;
  return { check, node, level, said, ...(level !== 'passed' && { problem }) };
}

const FINDINGS = [
  finding('disk', 'muthur', 'stops', '0 B free', 'on muthur: sudo rm -r /x'),
  finding('clock', 'wopr', 'slows', '90 s ahead', 'set it'),
  finding('names', 'muthur', 'unknown', 'unknown'),
  ...['clock', 'names', 'paths'].flatMap(check =>
    ['wopr', 'muthur']
      .filter(node => !(check === 'clock' && node === 'wopr'))
      .filter(node => !(check === 'names' && node === 'muthur'))
      .map(node => finding(check, node, 'passed', 'yes'))
  ),
  finding('disk', 'wopr', 'passed', '9 GB free')
];

function examination(
  fields: Partial<DoctorAnswer['report']> = {}
): DoctorAnswer {
  const report = {
    nodes: ['wopr', 'muthur'],
    findings: FINDINGS,
    silent: {},
    time_s: Date.now() / 1000,
    took_s: 1.4,
    ...fields
  };
  return { report, checks: CHECKS };
}

let copied = '';
beforeEach(() => {
  copied = '';
  Object.assign(navigator, {
    clipboard: { writeText: async (text: string) => void (copied = text) }
  });
});
afterEach(cleanup);

/** The tab, with what was asked. */
function open(answer: () => Promise<DoctorAnswer>, nodes: string[] = []) {
  const asks: string[][] = [];
  const examine = (asked: string[]) => {
    asks.push(asked);
    return answer();
  };
  const { model } = context({ api: { examine } }).props;
  render(<DoctorView model={model} nodes={nodes} />);
  return asks;
}

describe('rows', () => {
  it('are worst first, then by the number of nodes', () => {
    const rows = rowsOf(examination());
    expect(rows.map(({ id, level }) => [id, level])).toEqual([
      ['disk', 'stops'],
      ['clock', 'slows'],
      ['names', 'unknown'],
      ['paths', 'passed']
    ]);
    expect(rows[0].cells.map(one => one?.said)).toEqual([
      '9 GB free',
      '0 B free'
    ]);
    const more = finding('names', 'wopr', 'slows', 'slow');
    const also = finding('names', 'muthur', 'slows', 'slow');
    const findings = [...FINDINGS, more, also];
    expect(rowsOf(examination({ findings }))[1].id).toBe('names');
  });

  it('lack what no node has', () => {
    expect(rowsOf(examination({ findings: [] }))).toEqual([]);
  });
});

it.each([
  ['on muthur: sudo rm -r /x', ['on muthur:', 'sudo rm -r /x']],
  ['do this, or on a: sudo x -u 1', ['do this, or on a:', 'sudo x -u 1']],
  ['on a: sudo x; then restart it', ['on a: sudo x; then restart it', '']],
  ['set it', ['set it', '']]
])('the command in %s is by itself', (fix, parts) => {
  expect(splitFix(fix)).toEqual(parts);
});

describe('the doctor', () => {
  it('says what was found, with cause and fix', async () => {
    const asks = open(async () => examination());
    screen.getByText('Examining nodes…');
    await screen.findByText('1 stops a launch');
    expect(asks).toEqual([[]]);
    for (const words of ['1 may slow it down', '1 unknown', '1 passed']) {
      screen.getByText(words);
    }
    expect(screen.getByRole('status').textContent).toMatch(
      /^2 nodes, 4 checks, took 1.4\u00a0s, \d\d:\d\d$/
    );
    const table = screen.getByRole('table', { name: 'Found' });
    const titles = within(table).getAllByRole('button', { expanded: false });
    expect(titles.map(one => one.textContent)).toEqual([
      expect.stringContaining('Clock'),
      expect.stringContaining('Names')
    ]);
    screen.getByText('muthur: disk is bad'); // what stops is open
    screen.getByRole('button', { name: 'Copy sudo rm -r /x' });
    fireEvent.click(titles[0]);
    screen.getByText('wopr: clock is bad');
    fireEvent.click(titles[0]);
    expect(screen.queryByText('wopr: clock is bad')).toBeNull();
  });

  it('says a level in words, too', async () => {
    open(async () => examination());
    const cell = await screen.findByRole('cell', { name: /0 B free/ });
    expect(cell.textContent).toContain('stops a launch:');
  });

  it('checks again, and copies all of it', async () => {
    const asks = open(async () => examination(), ['wopr', 'muthur']);
    screen.getByText('Examining wopr, muthur…');
    await screen.findByText('1 passed');
    fireEvent.click(screen.getByRole('button', { name: 'Check again' }));
    await waitFor(() => expect(asks).toHaveLength(2));
    expect(asks[1]).toEqual(['wopr', 'muthur']);
    await screen.findByText(/took/);
    fireEvent.click(screen.getByRole('button', { name: 'Copy report' }));
    await waitFor(() => expect(copied).toContain('✕ Free disk'));
    expect(copied).toBe(reportText(examination()));
    expect(copied).toContain(
      '  muthur: disk is bad. Fix: on muthur: sudo rm -r /x'
    );
  });

  it('is one line for healthy nodes', async () => {
    const findings = FINDINGS.filter(one => one.level === 'passed');
    open(async () => examination({ findings }));
    await screen.findByText('4 checks passed on all nodes');
    expect(screen.queryByRole('table', { name: 'Found' })).toBeNull();
  });

  it('names nodes that are silent', async () => {
    const silent = { hal: { kind: 'silent', cause: 'does not answer' } } as any;
    open(async () => examination({ silent }));
    await screen.findByText('hal: does not answer');
    expect(reportText(examination({ silent }))).toContain('? hal: does not');
  });

  it('lists what was found on many nodes', async () => {
    const nodes = Array.from({ length: 12 }, (_, i) => `n${i}`);
    const findings = nodes.map(node => finding('disk', node, 'stops', '0 B'));
    open(async () => examination({ nodes, findings }));
    const table = await screen.findByRole('table', { name: 'Found' });
    expect(table.classList.contains('mnt-listed')).toBe(true);
    // So many causes are not open by themselves.
    expect(screen.queryByText('n3: disk is bad')).toBeNull();
  });

  it('says why it could not be asked', async () => {
    const problem = { cause: 'this driver is read-only', fix: 'ask for more' };
    open(() => Promise.reject(new RequestError(problem, 409)));
    const alert = await screen.findByRole('alert');
    expect(alert.textContent).toContain('this driver is read-only');
    expect(alert.textContent).toContain('Fix: ask for more');
  });

  it('is offered for all nodes, and for one', async () => {
    const { props, calls } = context();
    props.commands.addCommand(CommandIDs.doctor, {
      execute: args => void calls.push([CommandIDs.doctor, args])
    });
    render(<Cluster {...props} />);
    for (const [name, item] of [
      [/^More for cluster/, 'Examine all nodes'],
      [/^More for wopr/, 'Examine']
    ] as const) {
      fireEvent.click(screen.getByRole('button', { name }));
      const entry = (await screen.findByText(item)).closest('li')!;
      const menu = entry.closest('.lm-Menu')!;
      for (let one = entry; one.previousElementSibling;) {
        fireEvent.keyDown(menu, { keyCode: 40 }); // down
        one = one.previousElementSibling as HTMLLIElement;
      }
      fireEvent.keyDown(menu, { keyCode: 13 }); // Enter
    }
    await waitFor(() => expect(calls).toHaveLength(2));
    expect(calls).toEqual([
      [CommandIDs.doctor, {}],
      [CommandIDs.doctor, { nodes: ['wopr'] }]
    ]);
  });
});

describe('a first step', () => {
  /** The tab of a job, with what is answered about its first step. */
  function openJob(states: WorkState[]) {
    const asked: string[] = [];
    const api = {
      examine: async () => examination({ findings: [] }),
      tryFirstStep: async (job: string) => {
        asked.push(job);
        return states.shift()!;
      }
    };
    const { model } = context({ api }).props;
    render(<DoctorView model={model} nodes={[]} jobId="j-1" />);
    return asked;
  }

  const press = async () =>
    fireEvent.click(await screen.findByText('Try a first step'));

  it('is asked for until it has ended, and shown with the rest', async () => {
    const asked = openJob([
      { doing: 'starting the job for a first step' },
      { is_over: true, doctor: examination() }
    ]);
    await screen.findByText(/took/);
    await press();
    await screen.findByText('Free disk');
    expect(asked).toEqual(['j-1', 'j-1']);
  });

  it('that cannot be made says why; a click examines again', async () => {
    const problem = { kind: 'refused', cause: 'it may only watch' } as const;
    openJob([{ is_over: true, problem }]);
    await screen.findByText(/took/);
    await press();
    const alert = await screen.findByRole('alert');
    expect(alert.textContent).toContain('it may only watch');
    fireEvent.click(screen.getByText('Check again'));
    await waitFor(() => expect(screen.queryByRole('alert')).toBeNull());
  });

  it('is of a job, not of nodes', async () => {
    open(async () => examination(), ['wopr']);
    await screen.findByText(/took/);
    expect(screen.queryByText('Try a first step')).toBeNull();
  });
});

describe('a remedy', () => {
  const remedy = { push: 'models:llama', source: 'wopr', node: 'muthur' };
  const lacking = {
    ...finding('disk', 'muthur', 'stops', 'no model', 'push it'),
    remedy
  };

  function openWith(mend: () => Promise<WorkState>) {
    let asks = 0;
    const examine = async () => {
      asks += 1;
      return examination({ findings: asks > 1 ? [] : [lacking] });
    };
    const { model } = context({ api: { examine, mend } }).props;
    render(<DoctorView model={model} nodes={[]} />);
    return () => asks;
  }

  async function press(button: 'accept' | 'reject') {
    fireEvent.click(await screen.findByText('Push it from wopr…'));
    const dialog = await waitFor(() => {
      const found = document.querySelector('.jp-Dialog');
      expect(found).not.toBeNull();
      return found!;
    });
    fireEvent.click(dialog.querySelector(`.jp-mod-${button}`)!);
  }

  it('is carried out after a question, with its progress', async () => {
    const states: WorkState[] = [
      { doing: 'pushing models:llama, MiB', done: 3, total: 9 },
      { is_over: true }
    ];
    const told: Array<() => void> = [];
    const asks = openWith(async () => {
      await new Promise<void>(resolve => told.push(resolve));
      return states.shift()!;
    });
    await press('accept');
    await waitFor(() => expect(told).toHaveLength(1));
    told[0]();
    await screen.findByText('pushing models:llama, MiB: 3 of 9');
    expect(screen.getByRole('progressbar').getAttribute('aria-valuenow')).toBe(
      '33'
    );
    await waitFor(() => expect(told).toHaveLength(2));
    told[1]();
    await waitFor(() => expect(asks()).toBe(2));
  });

  it('that nobody wants does nothing', async () => {
    const mend = jest.fn();
    openWith(mend);
    await press('reject');
    await waitFor(() =>
      expect(document.querySelector('.jp-Dialog')).toBeNull()
    );
    expect(mend).not.toHaveBeenCalled();
  });

  it('that fails says why, and can be tried again', async () => {
    const problem = { kind: 'disk-full', cause: 'its disk is full' } as const;
    const asks = openWith(async () => ({ is_over: true, problem }));
    await press('accept');
    const alert = await screen.findByRole('alert');
    expect(alert.textContent).toContain('its disk is full');
    const button = screen.getByText('Push it from wopr…');
    expect(button.getAttribute('aria-disabled')).not.toBe('true');
    expect(asks()).toBe(1);
  });
});
