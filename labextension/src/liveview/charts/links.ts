/** Link chart: each direction relative to its measured capacity. */

import * as formats from '../../formats';
import { type LinkSummary, ZOOM_BELOW } from '../../schema';
import { type ILinkRows } from '../../series/store';
import {
  emptyNote,
  type IChart,
  type IChartInput,
  type ILine,
  shareDigits
} from './chart';
import { trans } from '../../trans';

interface ISide {
  name: string;
  rows: ILinkRows;
  isSent: boolean;
}

/** Directions shown: of two nodes both, as the sender counts; of more, the chosen node's. */
function sides({ store, job, choice }: IChartInput): ISide[] {
  const nodes = job.placements
    .map(placement => store.links.get(placement.node))
    .filter((rows): rows is ILinkRows => rows !== undefined);
  if (nodes.length === 2) {
    return nodes.map((rows, i) => ({
      name: nodes[1 - i].node,
      rows,
      isSent: true
    }));
  }
  const rows = nodes.find(one => one.node === choice.node) ?? busiest(nodes);
  return rows
    ? [true, false].map(isSent => ({ name: rows.node, rows, isSent }))
    : [];
}

export function busiest(nodes: ILinkRows[]): ILinkRows | undefined {
  const load = ({ link }: ILinkRows) =>
    Math.max(
      ...[link.sent, link.received].map(
        one => one.utilization ?? one.bytes_per_s ?? 0
      )
    );
  return nodes.reduce<ILinkRows | undefined>(
    (most, one) => (most && load(most) >= load(one) ? most : one),
    undefined
  );
}

export function linkChart(input: IChartInput): IChart | null {
  const { store } = input;
  if (store.links.size < 2) {
    return null;
  }
  const shown = sides(input);
  if (shown.length < 2) {
    return null;
  }
  const isPair = store.links.size === 2;
  const known = shown.flatMap(side => summaryOf(side).capacity ?? []);
  const isShare = known.length === shown.length;
  const scales = shown.map((_, i) => (isShare ? known[i].bytes_per_s : 1));
  const lines = shown.flatMap((side, i) =>
    sideLines(side, i, scales[i], sideLabel(side, isPair), input)
  );
  const top = highest(lines);
  const [one, other] = shown;
  return {
    key: 'links',
    title: isPair
      ? trans.__('Link %1 ⇄ %2', one.rows.node, other.rows.node)
      : trans.__('Link of %1', one.rows.node),
    subtitle: isShare
      ? trans.__(
          '→ above, ← below; 100 % = %1; hatched: other traffic',
          formats.capacity(known)
        )
      : trans.__('→ above, ← below; capacity not measured: %mntrain measure'),
    lines,
    ...linkScale(isShare, top, scales),
    isMirrored: true,
    note: emptyNote(lines, store, 'busiest_link'),
    height: 108
  };
}

function summaryOf({ rows, isSent }: ISide): LinkSummary {
  return isSent ? rows.link.sent : rows.link.received;
}

function sideLabel(side: ISide, isPair: boolean): string {
  if (isPair) {
    return trans.__('to %1', side.name);
  }
  return side.isSent ? trans.__('sent') : trans.__('received');
}

/** All traffic of one direction, and this job's own; the second direction is below zero. */
function sideLines(
  side: ISide,
  i: number,
  scale: number,
  label: string,
  { theme }: IChartInput
): ILine[] {
  const { table } = side.rows;
  const { utilization, bytes_per_s: rate } = summaryOf(side);
  const now = scale === 1 ? rate : utilization;
  const sign = i === 0 ? 1 : -1;
  const values = (name: 'sent' | 'received' | 'own_sent' | 'own_received') =>
    table.column(name).map(value => (sign * value) / scale);
  const base = { x: table.column('time_s'), dash: [] };
  return [
    {
      ...base,
      key: `all-${i}`,
      label: trans.__('%1, all', label),
      y: values(side.isSent ? 'sent' : 'received'),
      color: theme.other,
      width: 1,
      isQuiet: true
    },
    {
      ...base,
      key: `own-${i}`,
      label,
      y: values(side.isSent ? 'own_sent' : 'own_received'),
      now: typeof now === 'number' ? sign * now : now,
      color: theme.fill,
      width: 1.5,
      isFilled: true,
      fillTo: `all-${i}`,
      fillKind: 'hatch'
    }
  ];
}

/** The highest absolute value of all lines. */
function highest(lines: ILine[]): number {
  return lines
    .flatMap(line => [...line.y])
    .reduce((top, y) => (Math.abs(y) > top ? Math.abs(y) : top), 0);
}

/** Scale up to the capacity; zoomed if little of it is used or it is unknown. */
function linkScale(
  isShare: boolean,
  top: number,
  scales: number[]
): Pick<IChart, 'format' | 'tick' | 'limit' | 'levels'> {
  const isZoomed = !isShare || top < ZOOM_BELOW;
  const limits = {
    limit: isZoomed ? Math.max(1.25 * top, 1e-9) : Math.max(1.02, top),
    levels: isZoomed
      ? []
      : scales.map((scale, i) => ({
          at: i === 0 ? 1 : -1,
          label: formats.bitRate(scale)
        }))
  };
  return {
    ...limits,
    format: value =>
      (isShare ? formats.percent : formats.bitRate)(Math.abs(value)),
    tick: (value, step) =>
      isShare
        ? formats.percent(Math.abs(value), shareDigits(step))
        : formats.shortBitRate(Math.abs(value))
  };
}
