/** Pace strip: the pace of many ranks by node; the slower, the more contrast. */

import * as React from 'react';

import { Select } from '../../controls';
import * as formats from '../../formats';
import { MANY_RANKS, type RankSummary } from '../../schema';
import { pickedRank, slowestRank } from '../charts/rank_lines';
import type { IStripProps } from './pipeline';
import { trans } from '../../trans';

/** Ranks this much slower than the median are marked. */
const SLOW = 0.05;

interface IPace {
  who: RankSummary;
  pace: number;
}

export function PaceStrip(props: IStripProps): JSX.Element | null {
  const { store, choice, pick } = props;
  if (store.ranks.size < MANY_RANKS) {
    return null;
  }
  const ranks = store.sorted.map(rows => ({
    who: rows.who,
    pace: rows.who.pace_tokens_per_s ?? NaN
  }));
  const median = store.summary?.spreads?.pace_tokens_per_s?.median;
  if (median === undefined) {
    return null;
  }
  const picked = pickedRank(store, choice);
  const slowest = slowestRank(store);
  return (
    <section className="mnt-heat" aria-label={trans.__('Pace of all ranks')}>
      <div className="mnt-strip-head">
        <span>
          <span className="b">
            {trans.__('Pace of %1 ranks', store.ranks.size)}
          </span>{' '}
          <span className="m s">
            {trans.__(
              'compared with the median; more contrast is slower, ▼ from 5 %'
            )}
          </span>
        </span>
        <Select
          className="mnt-heat-select"
          label={trans.__('Show rank')}
          value={picked}
          options={ranks.map(({ who }) => [who.rank, named(who, slowest)])}
          pick={pick}
        />
      </div>
      <div className="mnt-heat-nodes" aria-hidden="true">
        {byNode(ranks).map(([node, cells]) => (
          <div key={node} className="mnt-heat-node">
            <div className="m s">{node}</div>
            <div className="mnt-heat-cells">
              {cells.map(cell => (
                <Cell
                  key={cell.who.rank}
                  {...cell}
                  median={median}
                  isPicked={cell.who.rank === picked}
                  pick={pick}
                />
              ))}
            </div>
          </div>
        ))}
      </div>
    </section>
  );
}

function byNode(ranks: IPace[]): [string, IPace[]][] {
  const nodes = new Map<string, IPace[]>();
  for (const rank of ranks) {
    nodes.set(rank.who.node, [...(nodes.get(rank.who.node) ?? []), rank]);
  }
  return [...nodes];
}

function named(who: RankSummary, slowest: number | null): string {
  const place = `${who.rank}, ${who.node}:${who.local_rank ?? 0}`;
  return who.rank === slowest ? `${place} (${trans.__('slowest')})` : place;
}

function Cell(
  props: IPace & {
    median: number;
    isPicked: boolean;
    pick: (rank: number) => void;
  }
): JSX.Element {
  const { who, pace, median, isPicked, pick } = props;
  const slower = Number.isNaN(pace) ? 0 : 1 - pace / median;
  const shade = Math.min(1, Math.max(0, 0.5 + slower / 0.1));
  return (
    <span
      className={`mnt-heat-cell${isPicked ? ' mnt-picked' : ''}`}
      style={{ opacity: 0.2 + 0.8 * shade }}
      title={`r${who.rank} ${formats.rate(pace)} tok/s`}
      onClick={() => pick(who.rank)}
    >
      {slower >= SLOW ? '▼' : ''}
    </span>
  );
}
