/** Nodes, jobs and rows to test with. */

import type {
  JobBundle,
  JobEntry,
  JobSeries,
  JobSummary,
  LinkSummary,
  NodeEntry,
  RankColumns,
  RankSummary,
  WrittenText
} from '../schema';
import type { ITheme } from '../liveview/charts/theme';
import { SeriesStore } from '../series/store';

export const JOB_ID = 'j-0000abcd';

export function node(name: string, fields: Partial<NodeEntry['view']> = {}) {
  const entry: NodeEntry = {
    key: `key-of-${name}`,
    name,
    view: {
      address: '10.0.0.1:8765',
      found_by: 'mdns',
      liveness: 'up',
      last_seen_s: 100,
      info: {
        node_id: `key-of-${name}`,
        name,
        cluster: 'lab',
        protocol: 1,
        addresses: ['10.0.0.1:8765'],
        inventory: {
          hostname: name,
          cpu_model: 'Ryzen',
          cpu_count: 16,
          memory_total_bytes: 64 * 2 ** 30,
          memory_available_bytes: 32 * 2 ** 30,
          interfaces: [],
          gpus: [],
          versions: { mntrain: '1', python: '3.11', platform: 'linux' }
        }
      },
      ...fields
    }
  };
  return entry;
}

export function job(fields: Partial<JobEntry> = {}): JobEntry {
  return {
    job_id: JOB_ID,
    name: 'llama',
    state: 'running',
    entry: ['-m', 'jupyter_mntrain.train', 'recipe.toml'],
    attempt: 1,
    submitted_s: 100,
    placements: [],
    parts: ['wopr', 'muthur'].map((node, rank) => ({
      node_id: node,
      node,
      state: 'running' as const,
      ranks: [{ rank, state: 'running' as const }]
    })),
    numbers: { step: 4, total_steps: 10 },
    ...fields
  } as JobEntry;
}

export function rank(
  number: number,
  rows: number,
  first = 1,
  fields: Partial<RankColumns> = {}
): RankColumns {
  const column = (value: (step: number) => number) =>
    Array.from({ length: rows }, (_, i) => value(first + i));
  return {
    rank: number,
    time_s: column(step => 1000 + step),
    step: column(step => step),
    tokens_per_s: column(() => 100),
    pace_tokens_per_s: column(() => (number ? 150 : 200)),
    compute: column(() => 0.5),
    wait: column(() => 0.3),
    schedule_bubble: column(() => 0.2),
    ...fields
  };
}

export function rankSummary(
  number: number,
  fields: Partial<RankSummary> = {}
): RankSummary {
  return {
    rank: number,
    node: number ? 'muthur' : 'wopr',
    state: 'running',
    stages: [number],
    step: 4,
    tokens_per_s: 100,
    pace_tokens_per_s: number ? 150 : 200,
    compute: 0.5,
    wait: 0.3,
    schedule_bubble: 0.2,
    ...fields
  };
}

/** The figures of these ranks' job. */
export function summary(
  ranks: RankSummary[] = [rankSummary(0), rankSummary(1)],
  fields: Partial<JobSummary> = {}
): JobSummary {
  return {
    job_id: JOB_ID,
    name: 'llama',
    state: 'running',
    step: 4,
    tokens_per_s: 93,
    slowest_rank: 1,
    ranks,
    ...fields
  };
}

export function linkSummary(
  node: string,
  direction: 'sent' | 'received',
  fields: Partial<LinkSummary> = {}
): LinkSummary {
  return { node, interface: 'eno1', direction, basis: 'interface', ...fields };
}

export function series(fields: Partial<JobSeries> = {}): JobSeries {
  return {
    summary: summary(fields.ranks?.map(({ rank }) => rankSummary(rank))),
    job_id: JOB_ID,
    attempt: 1,
    stream: 's-1',
    since: 0,
    seq: 8,
    ranks: [rank(0, 4), rank(1, 4)],
    job: {
      time_s: [1001, 1002, 1003, 1004],
      step: [1, 2, 3, 4],
      tokens_per_s: [90, 91, 92, 93],
      loss: [4, 3, null, 2]
    },
    ...fields
  };
}

export function written(
  step: number,
  text = `I am ${step}.`,
  prompt = 'Who are you?'
): WrittenText {
  return { time_s: 1000 + step, step, prompt, text };
}

export function bundle(fields: Partial<JobBundle> = {}): JobBundle {
  return {
    cluster: 'lab',
    job: job(),
    series: series(),
    saved_s: 2000,
    ...fields
  };
}

export const THEME: ITheme = {
  ranks: ['#1', '#2', '#3', '#4'],
  job: '#5',
  fill: '#6',
  other: '#7',
  grid: '',
  axis: '',
  text: '',
  secondary: '',
  band: '',
  bad: '',
  font: 'x'
};

export function stored(fields: Parameters<typeof series>[0] = {}): SeriesStore {
  const store = new SeriesStore();
  store.take(series(fields));
  return store;
}
