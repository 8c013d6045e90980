/** Rank lines: a line per rank, or for many ranks a band and one rank. */

import { MANY_RANKS } from '../../schema';
import { band } from '../../series/band';
import type { IRankRows, SeriesStore } from '../../series/store';
import {
  hasValues,
  type IChartInput,
  type IChoice,
  type ILine,
  secondsTo
} from './chart';
import { DASHES } from './theme';
import { trans } from '../../trans';

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
    steps: rows.table.column('step'),
    seconds: secondsOf(rows, name),
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
  const picked = pickedRank(store, choice);
  const style = { color: theme.ranks[1], dash: DASHES[1], isMarked: false };
  return [
    ...bandLines(ranks.map(line), input, name),
    ...ranks
      .filter(rows => rows.who.rank === picked)
      .map(rows => ({ ...line(rows), ...style }))
  ];
}

/** What a figure of a rank's row is over: a pace is over the time that it computed. */
function secondsOf({ table }: IRankRows, name: RankFigure): Float64Array {
  const seconds = secondsTo(table.column('time_s'));
  const compute = table.column('compute');
  return name === 'pace_tokens_per_s'
    ? seconds.map((one, at) => one * compute[at])
    : seconds;
}

/** Maximum, minimum and median of all ranks, with the area between filled. */
function bandLines(
  lines: ILine[],
  { store, theme }: IChartInput,
  name: RankFigure
): ILine[] {
  const { x, steps, low, middle, high } = band(lines);
  const now = store.summary?.spreads?.[name];
  const base = { x, steps, width: 1, dash: [], color: theme.ranks[0] };
  const line = (key: string, label: string, y: Float64Array, now?: number) => ({
    ...base,
    key,
    label,
    y,
    now: now ?? null
  });
  return [
    line('max', trans.__('max'), high, now?.high),
    {
      ...line('min', trans.__('min'), low, now?.low),
      fillTo: 'max',
      fillKind: 'band'
    },
    { ...line('median', trans.__('median'), middle, now?.median), width: 1.5 }
  ];
}
