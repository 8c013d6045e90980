import { bracketText, brackets } from '../history/brackets';
import { historyCharts } from '../history/charts';
import { historyCsv } from '../history/csv';
import { Past } from '../history/past';
import { tableRows } from '../history/table';
import { align, readingAt } from '../liveview/charts/align';
import type { HistoryJob, HistoryLine, NodeHistory } from '../schema';
import { THEME } from './samples';

const GIB = 2 ** 30;

function line(
  figure: HistoryLine['figure'],
  mean: (number | null)[],
  spread = 0
): HistoryLine {
  const moved = (by: number) =>
    spread ? mean.map(one => (one === null ? null : one + by)) : [];
  return { figure, mean, low: moved(-spread), high: moved(spread) };
}

function history(fields: Partial<NodeHistory> = {}): NodeHistory {
  return {
    node_id: 'n',
    node: 'wopr',
    begin_s: 1000,
    step_s: 60,
    points: 4,
    gaps: [{ begin_s: 1060, end_s: 1120, state: 'off' }],
    parts: [
      {
        kind: 'node',
        total: 64 * GIB,
        lines: [line('cpu_share', [0.5, null, 0.25, 0.75], 0.125)]
      },
      {
        kind: 'gpu',
        key: 'GPU-a',
        index: 1,
        total: 24 * GIB,
        lines: [
          line('utilization', [1, null, 0, 1]),
          line('memory_bytes', [GIB, null, 2 * GIB, 2 * GIB]),
          line('temperature_c', [40, null, 41, 42])
        ]
      },
      {
        kind: 'interface',
        key: 'eno1',
        total: 1000,
        lines: [
          line('sent_bytes_per_s', [100, null, 200, 900]),
          line('received_bytes_per_s', [50, null, 60, 70]),
          line('own_sent_bytes_per_s', [90, null, 180, 800])
        ]
      }
    ],
    ...fields
  };
}

const chart = (key: string, of = history()) =>
  historyCharts(of, THEME).find(one => one.key === key)!;

describe('charts of a history', () => {
  it('are those of what is known', () => {
    expect(historyCharts(history(), THEME).map(one => one.key)).toEqual([
      'use',
      'gpu-memory',
      'temperature_c',
      'network-eno1'
    ]);
    expect(historyCharts(history({ parts: [] }), THEME)).toEqual([]);
  });

  it('have fixed scales: all there is of it', () => {
    expect(chart('use').range).toEqual([0, 1]);
    expect(chart('gpu-memory').range).toEqual([0, 24]);
    expect(chart('temperature_c').range).toEqual([25, 95]);
  });

  it('are not drawn across gaps, which are shaded in all of them', () => {
    for (const one of historyCharts(history(), THEME)) {
      expect(one.gaps).toEqual([[1060, 1120]]);
      expect(one.lines.every(each => each.keepsGaps)).toBe(true);
    }
    const use = chart('use');
    const cpu = use.lines.find(one => one.key === 'cpu')!;
    const data = align(use.lines);
    expect(readingAt(use, cpu, data, 1090).value).toBeNaN();
    expect(readingAt(use, cpu, data, 1150).value).toBe(0.25);
    expect(readingAt(use, cpu, data, null).value).toBe(0.75);
  });

  it('have a band from the lowest to the highest second of a point', () => {
    const { lines } = chart('use');
    const low = lines.find(one => one.key === 'cpu-low')!;
    expect([...low.y]).toEqual([0.375, NaN, 0.125, 0.625]);
    expect(low.fillTo).toBe('cpu-high');
    expect(lines.some(one => one.key === 'gpu-GPU-a-low')).toBe(false);
  });

  it('mirror an interface at zero, as shares of its capacity', () => {
    const { lines, isMirrored, limit } = chart('network-eno1');
    const of = (key: string) => [...lines.find(one => one.key === key)!.y];
    expect(isMirrored).toBe(true);
    expect(limit).toBe(1.02);
    expect(of('all-0')).toEqual([0.1, NaN, 0.2, 0.9]);
    expect(of('own-0')).toEqual([0.09, NaN, 0.18, 0.8]);
    expect(of('all-1')).toEqual([-0.05, NaN, -0.06, -0.07]);
    expect(lines.some(one => one.key === 'own-1')).toBe(false);
  });

  it('tell rates where the capacity is not known', () => {
    const parts = history().parts!.map(part => ({ ...part, total: null }));
    const { format, limit } = chart('network-eno1', history({ parts }));
    expect(format(125_000)).toBe('1\u00a0Mbit/s');
    expect(limit).toBe(1125);
  });
});

describe('a line of the sidebar', () => {
  const past = (age = 0) => new Past(history(), age);

  it('is not joined across a gap, and its scale is all there is', () => {
    expect(past().line('node', 'cpu_share')!.path).toBe(
      'M15.0 7.0h0M75.0 10.5h0L105.0 3.5'
    );
    const { path } = past().line('gpu', 'memory_bytes', 'GPU-a')!;
    expect(path).toMatch(/^M15.0 13.4h0/);
  });

  it('tells its lowest and highest value', () => {
    const line = past().line('interface', 'sent_bytes_per_s', 'eno1')!;
    expect([line.lowest, line.highest]).toEqual([100, 900]);
  });

  it('ends where values end, while the time goes on', () => {
    expect(past(60).line('node', 'cpu_share')!.path).toBe(
      'M45.0 10.5h0L75.0 3.5'
    );
    expect(past(600).line('node', 'cpu_share')!.path).toBe('');
  });

  it('is missing where nothing is known, also where its scale would end', () => {
    expect(past().line('gpu', 'power_w', 'GPU-a')).toBeNull();
    expect(new Past(null, 0).line('node', 'cpu_share')).toBeNull();
    const parts = history().parts!.map(part => ({ ...part, total: null }));
    const unmeasured = new Past(history({ parts }), 0);
    const of = (total: number | null) =>
      unmeasured.line('interface', 'sent_bytes_per_s', 'eno1', total);
    expect(of(null)).toBeNull();
    expect(of(1000)!.highest).toBe(900);
  });
});

describe('brackets', () => {
  const job = (begin_s: number, end_s?: number): HistoryJob => ({
    job_id: `j-${begin_s}`,
    name: 'llama',
    state: 'succeeded',
    ranks: [0, 1],
    gpus: [],
    begin_s,
    end_s
  });

  it('are cut at the ends of the time shown, and go on while a job runs', () => {
    const all = [job(0, 50), job(90, 120), job(150, 160), job(190)];
    expect(brackets(all, [100, 200]).map(({ from, to }) => [from, to])).toEqual(
      [
        [100, 120],
        [150, 160],
        [190, 200]
      ]
    );
  });

  it('stand above each other where jobs ran at the same time', () => {
    const all = [job(0, 50), job(10, 20), job(30, 60), job(55, 70)];
    expect(brackets(all, [0, 100]).map(one => one.row)).toEqual([0, 1, 1, 0]);
  });

  it('name the job and its ranks here', () => {
    expect(bracketText(job(0))).toBe('llama, ranks 0, 1');
  });
});

describe('exports of a history', () => {
  it('have a row for each known value', () => {
    const rows = historyCsv(history()).trim().split('\n');
    expect(rows[0]).toBe('time_s,part,figure,mean,low,high');
    expect(rows[1]).toBe('1000,node,cpu_share,0.5,0.375,0.625');
    expect(rows).toContain('1120,GPU-a,utilization,0,0,0');
    expect(rows).toHaveLength(1 + 7 * 3);
  });

  it('have the lowest and highest second of each line in the table', () => {
    const [, cpu] = tableRows([chart('use')]);
    expect([...cpu.highest.y]).toEqual([0.625, NaN, 0.375, 0.875]);
  });
});
