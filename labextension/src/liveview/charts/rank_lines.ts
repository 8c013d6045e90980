/** A line per rank, or for many ranks a band and one rank by itself. */

import type { TranslationBundle } from '@jupyterlab/translation';

import { band } from '../../series/band';
import type { IRankRows, RankTable, SeriesStore } from '../../series/store';
import { hasValues, type IChoice, type ILine } from './chart';
import { DASHES, type ITheme } from './theme';

/** From this many ranks on: a band and one picked rank instead of a line per rank. */
export const MANY_RANKS = 9;

/** The values of a rank that are drawn. */
export type RankValues = (table: RankTable) => Float64Array;

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
  for (const { who, now } of store.sorted) {
    const pace = now.pace_tokens_per_s;
    if (pace < least) {
      [slowest, least] = [who.rank, pace];
    }
  }
  return store.ranks.size > 1 ? slowest : null;
}

/** A line per rank, or for many ranks a band and the picked one. */
export function rankLines(
  store: SeriesStore,
  theme: ITheme,
  choice: IChoice,
  trans: TranslationBundle,
  values: RankValues
): ILine[] {
  const ranks = store.sorted.filter(({ table }) => hasValues(values(table)));
  const line = (rows: IRankRows): ILine => ({
    key: `r${rows.who.rank}`,
    label: `r${rows.who.rank}`,
    x: rows.table.column('time_s'),
    y: values(rows.table),
    width: 1.5,
    color: theme.ranks[rows.who.rank % 4],
    dash: DASHES[rows.who.rank % 4],
    isMarked: rows.who.rank % 8 >= 4
  });
  if (ranks.length < MANY_RANKS) {
    const only = ranks.filter(rows => rows.who.rank === choice.rank);
    return (only.length ? only : ranks).map(line);
  }
  const picked = ranks.find(
    rows => rows.who.rank === pickedRank(store, choice)
  );
  const alone = picked && {
    ...line(picked),
    color: theme.ranks[1],
    dash: DASHES[1],
    isMarked: false
  };
  return [
    ...bandLines(ranks.map(line), theme, trans),
    ...(alone ? [alone] : [])
  ];
}

/** Highest, lowest and median of all ranks, the area between them filled. */
function bandLines(
  lines: ILine[],
  theme: ITheme,
  trans: TranslationBundle
): ILine[] {
  const { x, low, middle, high } = band(lines);
  const base = { x, width: 1, dash: [], color: theme.ranks[0] };
  return [
    { ...base, key: 'max', label: trans.__('max'), y: high },
    {
      ...base,
      key: 'min',
      label: trans.__('min'),
      y: low,
      fillTo: 'max',
      fillKind: 'band'
    },
    {
      ...base,
      key: 'median',
      label: trans.__('median'),
      y: middle,
      width: 1.5
    }
  ];
}
