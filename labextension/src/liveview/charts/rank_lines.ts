/** Rank lines: a line per rank, or for many ranks a band and one rank. */

import { band } from '../../series/band';
import type { IRankRows, SeriesStore } from '../../series/store';
import { hasValues, type IChartInput, type IChoice, type ILine } from './chart';
import { DASHES } from './theme';

/** From this many ranks on: a band and one picked rank instead of a line per rank. */
export const MANY_RANKS = 9;

/** Figures of a rank that can be drawn. */
export type RankFigure = 'pace_tokens_per_s' | 'mfu' | 'compute';

/** The rank shown alone among many. */
export function pickedRank(store: SeriesStore, choice: IChoice): number | null {
  if (choice.rank !== null && store.ranks.has(choice.rank)) {
    return choice.rank;
  }
  return slowestRank(store);
}

export function slowestRank(store: SeriesStore): number | null {
  return store.summary?.slowest_rank ?? null;
}

/** A line per rank, or for many ranks a band and the picked one. */
export function rankLines(input: IChartInput, name: RankFigure): ILine[] {
  const { store, theme, choice } = input;
  const ranks = store.sorted.filter(({ table }) =>
    hasValues(table.column(name))
  );
  const line = (rows: IRankRows): ILine => ({
    key: `r${rows.who.rank}`,
    label: `r${rows.who.rank}`,
    x: rows.table.column('time_s'),
    y: rows.table.column(name),
    now: rows.who[name] ?? null,
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
    ...bandLines(ranks.map(line), input, name),
    ...(alone ? [alone] : [])
  ];
}

/** Maximum, minimum and median of all ranks, with the area between filled. */
function bandLines(
  lines: ILine[],
  { store, theme, trans }: IChartInput,
  name: RankFigure
): ILine[] {
  const { x, low, middle, high } = band(lines);
  const base = { x, width: 1, dash: [], color: theme.ranks[0] };
  const now = store.summary?.spreads?.[name];
  return [
    {
      ...base,
      key: 'max',
      label: trans.__('max'),
      y: high,
      now: now?.high ?? null
    },
    {
      ...base,
      key: 'min',
      label: trans.__('min'),
      y: low,
      now: now?.low ?? null,
      fillTo: 'max',
      fillKind: 'band'
    },
    {
      ...base,
      key: 'median',
      label: trans.__('median'),
      y: middle,
      now: now?.median ?? null,
      width: 1.5
    }
  ];
}
