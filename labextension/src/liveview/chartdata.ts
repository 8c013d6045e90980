/** Which lines each chart has, out of the rows. Pure. */

import type { TranslationBundle } from '@jupyterlab/translation';

import * as formats from '../formats';
import type { JobEntry } from '../schema';
import {
  band,
  type ILinkRows,
  type IRankRows,
  type SeriesStore
} from '../series';
import { DASHES, type ITheme } from './theme';

/** From here on a band and one picked rank instead of a line per rank. */
export const MANY_RANKS = 9;

/** A link this empty is shown enlarged: on a full scale it would be a flat line. */
const ZOOM_BELOW = 0.1;

export interface ILine {
  key: string;
  label: string;
  x: Float64Array;
  y: Float64Array;
  color: string;
  dash: number[];
  width: number;
  /** Filled to zero with the line's own color. */
  isFilled?: boolean;
  /** Filled up to this other line: plain, or hatched. */
  fillTo?: string;
  fillKind?: 'band' | 'hatch';
  /** Points drawn on it: ranks 4 to 7 repeat colors, and evaluations are few. */
  isMarked?: boolean;
  /** Drawn, but without a label. */
  isQuiet?: boolean;
}

export interface IChart {
  key: 'throughput' | 'mfu' | 'links' | 'bubble' | 'loss';
  title: string;
  subtitle: string;
  lines: ILine[];
  format: (value: number) => string;
  /** A value on the axis; `step` is the distance to the next one. */
  tick: (value: number, step: number) => string;
  /** Zero in the middle: one direction above, the other below. */
  isMirrored?: boolean;
  /** Highest and lowest value of the scale, where they do not follow the lines. */
  limit?: number;
  /** Drawn across: the capacity. */
  levels?: { at: number; label: string }[];
  note?: string;
  height: number;
}

export interface IChoice {
  /** The rank shown by itself; `null` = the slowest of many, all of few. */
  rank: number | null;
  /** The node whose link is shown, where there are more than two. */
  node: string | null;
}

export function charts(
  store: SeriesStore,
  job: JobEntry,
  theme: ITheme,
  choice: IChoice,
  trans: TranslationBundle
): IChart[] {
  const links = linkChart(store, job, theme, choice, trans);
  return [
    throughputChart(store, job, theme, choice, trans),
    rankChart(store, theme, choice, trans, {
      key: 'mfu',
      title: trans.__('MFU'),
      subtitle: trans.__('per rank, of its own peak'),
      column: 'mfu',
      format: value => formats.percent(value),
      missing: trans.__(
        'The peak of these devices, or the model’s FLOPs, are not known.'
      )
    }),
    ...(links ? [links] : []),
    rankChart(store, theme, choice, trans, {
      key: 'bubble',
      title: trans.__('Not computing'),
      subtitle: trans.__('share of a step: bubble, sending, waiting'),
      column: 'idle',
      format: value => formats.percent(value),
      missing: trans.__('Not reported: recorder.step(compute_s=…) shows it.')
    }),
    lossChart(store, theme, trans)
  ];
}

/** The rank that is shown by itself among many. */
export function pickedRank(store: SeriesStore, choice: IChoice): number | null {
  if (choice.rank !== null && store.ranks.has(choice.rank)) {
    return choice.rank;
  }
  return slowestRank(store);
}

export function slowestRank(store: SeriesStore): number | null {
  let slowest: number | null = null;
  let least = Infinity;
  for (const { who, table } of store.sorted) {
    const pace = table.recent('pace_tokens_per_s');
    if (pace < least) {
      [slowest, least] = [who.rank, pace];
    }
  }
  return store.ranks.size > 1 ? slowest : null;
}

function stroke(rank: number, theme: ITheme): Partial<ILine> {
  return {
    color: theme.ranks[rank % 4],
    dash: DASHES[rank % 4],
    isMarked: rank % 8 >= 4
  };
}

function column(rows: IRankRows, name: string): Float64Array {
  if (name !== 'idle') {
    return rows.table.column(name as 'mfu');
  }
  return rows.table.column('compute').map(share => 1 - share);
}

/** Ranks with the same stages: each has tokens of its own. */
function replicas(store: SeriesStore): number {
  const stages = new Set(
    store.sorted.map(({ who }) => (who.stages ?? []).join(','))
  );
  return Math.max(1, store.ranks.size / Math.max(1, stages.size));
}

function hasValues(values: Float64Array): boolean {
  return values.some(value => !Number.isNaN(value));
}

/** A line per rank, or for many ranks a band and the picked one. */
function rankLines(
  store: SeriesStore,
  theme: ITheme,
  choice: IChoice,
  trans: TranslationBundle,
  name: string
): ILine[] {
  const ranks = store.sorted.filter(rows => hasValues(column(rows, name)));
  if (ranks.length === 0) {
    return [];
  }
  const base = { width: 1.5, dash: [] as number[] };
  const line = (rows: IRankRows): ILine => ({
    ...base,
    key: `r${rows.who.rank}`,
    label: `r${rows.who.rank}`,
    x: rows.table.column('time_s'),
    y: column(rows, name),
    color: theme.fill,
    ...stroke(rows.who.rank, theme)
  });
  if (ranks.length < MANY_RANKS) {
    const only = ranks.filter(rows => rows.who.rank === choice.rank);
    return (only.length ? only : ranks).map(line);
  }
  const lines = ranks.map(rows => ({
    x: rows.table.column('time_s'),
    y: column(rows, name)
  }));
  const { x, low, middle, high } = band(lines);
  const color = theme.ranks[0];
  const picked = ranks.find(
    rows => rows.who.rank === pickedRank(store, choice)
  );
  return [
    {
      ...base,
      key: 'max',
      label: trans.__('max'),
      x,
      y: high,
      color,
      width: 1
    },
    {
      ...base,
      key: 'min',
      label: trans.__('min'),
      x,
      y: low,
      color,
      width: 1,
      fillTo: 'max',
      fillKind: 'band'
    },
    { ...base, key: 'median', label: trans.__('median'), x, y: middle, color },
    ...(picked
      ? [
          {
            ...line(picked),
            color: theme.ranks[1],
            dash: DASHES[1],
            isMarked: false
          }
        ]
      : [])
  ];
}

function rankChart(
  store: SeriesStore,
  theme: ITheme,
  choice: IChoice,
  trans: TranslationBundle,
  how: {
    key: IChart['key'];
    title: string;
    subtitle: string;
    column: string;
    format: (value: number) => string;
    missing: string;
  }
): IChart {
  const lines = rankLines(store, theme, choice, trans, how.column);
  return {
    key: how.key,
    title: how.title,
    subtitle: how.subtitle,
    lines,
    format: how.format,
    tick: (value, step) => formats.percent(value, shareDigits(step)),
    note: lines.length ? undefined : how.missing,
    height: 72
  };
}

function throughputChart(
  store: SeriesStore,
  job: JobEntry,
  theme: ITheme,
  choice: IChoice,
  trans: TranslationBundle
): IChart {
  const isShort = store.ranks.size >= MANY_RANKS;
  const copies = replicas(store);
  const paces = rankLines(store, theme, choice, trans, 'pace_tokens_per_s').map(
    line => ({ ...line, y: line.y.map(pace => pace * copies) })
  );
  const own: ILine[] = hasValues(store.job.column('tokens_per_s'))
    ? [
        {
          key: 'job',
          label: trans.__('job'),
          x: store.job.column('time_s'),
          y: store.job.column('tokens_per_s'),
          color: theme.job,
          dash: [],
          width: 2
        }
      ]
    : [];
  const lines = [...paces, ...own];
  return {
    key: 'throughput',
    title: trans.__('Throughput, tok/s'),
    subtitle: paces.length
      ? trans.__('job, and what it were at each rank’s pace while computing')
      : '',
    lines,
    format: value => formats.rate(value, isShort),
    tick: value => formats.rate(value, true),
    note: lines.length ? undefined : trans.__('No step yet.'),
    height: 108
  };
}

function lossChart(
  store: SeriesStore,
  theme: ITheme,
  trans: TranslationBundle
): IChart {
  const y = store.job.column('loss');
  const lines: ILine[] = [];
  if (hasValues(y)) {
    lines.push({
      key: 'loss',
      label: trans.__('loss'),
      x: store.job.column('time_s'),
      y,
      color: theme.job,
      dash: [],
      width: 2
    });
  }
  if (store.evaluation.length) {
    lines.push({
      key: 'evaluation',
      label: trans.__('evaluation'),
      x: store.evaluation.column('time_s'),
      y: store.evaluation.column('loss'),
      color: theme.fill,
      dash: [6, 4],
      width: 1.5,
      isMarked: true
    });
  }
  return {
    key: 'loss',
    title: trans.__('Loss'),
    subtitle: '',
    lines,
    format: value => formats.loss(value),
    tick: value => value.toLocaleString('en-US', { maximumFractionDigits: 2 }),
    note: lines.length ? undefined : trans.__('No loss is reported.'),
    height: 72
  };
}

/** Digits that tell values this far apart from each other. */
function shareDigits(step: number): number {
  return step >= 0.00999 ? 0 : step >= 0.000999 ? 1 : 2;
}

interface ISide {
  name: string;
  rows: ILinkRows;
  isSent: boolean;
}

/** The link whose two sides are shown: of two nodes each by its sender, of more the chosen one's. */
function sides(store: SeriesStore, job: JobEntry, choice: IChoice): ISide[] {
  const nodes = job.placements
    .map(placement => store.links.get(placement.node))
    .filter((rows): rows is ILinkRows => rows !== undefined);
  if (nodes.length === 2) {
    return nodes.map((rows, i) => ({
      name: nodes[1 - i].link.node,
      rows,
      isSent: true
    }));
  }
  const rows =
    nodes.find(one => one.link.node === choice.node) ?? busiest(nodes);
  return rows
    ? [
        { name: rows.link.node, rows, isSent: true },
        { name: rows.link.node, rows, isSent: false }
      ]
    : [];
}

export function busiest(nodes: ILinkRows[]): ILinkRows | undefined {
  const load = ({ link, table }: ILinkRows) =>
    Math.max(table.recent('sent') || 0, table.recent('received') || 0) /
    (link.capacity_bytes_per_s ?? 1);
  return nodes.reduce<ILinkRows | undefined>(
    (most, one) => (most && load(most) >= load(one) ? most : one),
    undefined
  );
}

function linkChart(
  store: SeriesStore,
  job: JobEntry,
  theme: ITheme,
  choice: IChoice,
  trans: TranslationBundle
): IChart | null {
  if (store.links.size < 2) {
    return null;
  }
  const shown = sides(store, job, choice);
  if (shown.length < 2) {
    return null;
  }
  const isShare = shown.every(side => side.rows.link.capacity_bytes_per_s);
  const scale = (side: ISide) =>
    isShare ? side.rows.link.capacity_bytes_per_s! : 1;
  const isPair = store.links.size === 2;
  let top = 0;
  const lines = shown.flatMap((side, i): ILine[] => {
    const sign = i === 0 ? 1 : -1;
    const values = (name: 'sent' | 'received' | 'own_sent' | 'own_received') =>
      side.rows.table.column(name).map(value => {
        const scaled = value / scale(side);
        top = scaled > top ? scaled : top;
        return sign * scaled;
      });
    const label = isPair
      ? trans.__('to %1', side.name)
      : side.isSent
        ? trans.__('sent')
        : trans.__('received');
    const common = {
      x: side.rows.table.column('time_s'),
      color: theme.fill,
      dash: [] as number[],
      width: 1.5
    };
    const total: ILine = {
      ...common,
      key: `all-${i}`,
      label: trans.__('%1, all', label),
      y: values(side.isSent ? 'sent' : 'received'),
      color: theme.other,
      width: 1,
      isQuiet: true
    };
    const own: ILine = {
      ...common,
      key: `own-${i}`,
      label,
      y: values(side.isSent ? 'own_sent' : 'own_received'),
      isFilled: true,
      fillTo: `all-${i}`,
      fillKind: 'hatch'
    };
    return [total, own];
  });
  const isZoomed = !isShare || top < ZOOM_BELOW;
  const format = (value: number) =>
    isShare
      ? formats.percent(Math.abs(value), top < 0.02 ? 2 : 1)
      : formats.bitRate(Math.abs(value));
  const [one, other] = shown;
  return {
    key: 'links',
    title: isPair
      ? trans.__('Link %1 ⇄ %2', one.rows.link.node, other.rows.link.node)
      : trans.__('Link of %1', one.rows.link.node),
    subtitle: isShare
      ? trans.__(
          '→ above, ← below, of measured capacity; hatched: other traffic'
        )
      : trans.__('→ above, ← below; capacity not measured: %mntrain measure'),
    lines,
    format,
    tick: isShare
      ? (value, step) => formats.percent(Math.abs(value), shareDigits(step))
      : value => formats.shortBitRate(Math.abs(value)),
    isMirrored: true,
    limit: isZoomed ? Math.max(1.25 * top, 1e-9) : Math.max(1.02, top),
    levels: isZoomed
      ? []
      : shown.map((side, i) => ({
          at: i === 0 ? 1 : -1,
          label: formats.bitRate(scale(side))
        })),
    note: lines.some(line => line.y.length)
      ? undefined
      : trans.__('No sample yet.'),
    height: 108
  };
}
