/** Where a step's time goes, stage by stage; and how fast each of many ranks is. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import * as formats from '../formats';
import type { IRankRows, SeriesStore } from '../series';
import { MANY_RANKS, pickedRank, slowestRank, type IChoice } from './chartdata';
import { DASHES, type ITheme } from './theme';

const PARTS = ['compute', 'send', 'wait', 'bubble'] as const;

/** A rank this much slower than the median is marked. */
const SLOW = 0.05;

export interface IStripProps {
  store: SeriesStore;
  theme: ITheme;
  choice: IChoice;
  pick: (rank: number | null) => void;
  trans: TranslationBundle;
}

interface IRow {
  rows: IRankRows;
  label: string;
  who: string;
}

function rowsOf(store: SeriesStore, trans: TranslationBundle): IRow[] {
  const shown = store.sorted.filter(
    rows => !Number.isNaN(rows.table.recent('compute'))
  );
  const place = ({ who }: IRankRows) => `${who.node}:${who.local_rank ?? 0}`;
  if (store.ranks.size < MANY_RANKS) {
    return shown.map(rows => ({
      rows,
      label: rows.who.stages?.length
        ? trans.__('stage %1', rows.who.stages.join(', '))
        : trans.__('rank %1', rows.who.rank),
      who: `r${rows.who.rank} ${place(rows)}`
    }));
  }
  // Of the replicas of a stage, the slowest sets the pace.
  const byStage = new Map<string, IRankRows[]>();
  for (const rows of shown) {
    const stage = (rows.who.stages ?? []).join(', ');
    byStage.set(stage, [...(byStage.get(stage) ?? []), rows]);
  }
  if (byStage.size < 2) {
    return [];
  }
  const pace = (rows: IRankRows) => rows.table.recent('pace_tokens_per_s');
  return [...byStage].map(([stage, replicas]) => {
    const rows = replicas.reduce((a, b) => (pace(b) < pace(a) ? b : a));
    return {
      rows,
      label: trans.__('stage %1', stage),
      who: `r${rows.who.rank} ${place(rows)}`
    };
  });
}

export function PipelineStrip(props: IStripProps): JSX.Element | null {
  const { store, theme, choice, pick, trans } = props;
  const rows = rowsOf(store, trans);
  if (rows.length === 0) {
    return null;
  }
  const isMany = store.ranks.size >= MANY_RANKS;
  const slowest = slowestRank(store);
  const names = {
    compute: trans.__('compute'),
    send: trans.__('send'),
    wait: trans.__('wait'),
    bubble: trans.__('bubble')
  };
  return (
    <section
      className="mnt-strip"
      aria-label={trans.__('Pipeline, share of a step')}
    >
      <div className="mnt-strip-head">
        <span className="b">
          {isMany
            ? trans.__('Pipeline, share of a step, %, slowest of each stage')
            : trans.__('Pipeline, share of a step, %')}
        </span>
        {PARTS.map(part => (
          <span key={part} className="mnt-strip-key s">
            <span className={`mnt-swatch mnt-part-${part}`} /> {names[part]}
          </span>
        ))}
      </div>
      {rows.map(({ rows: rank, label, who }) => {
        const number = rank.who.rank;
        const isPicked = choice.rank === number;
        const shares = PARTS.map(part => rank.table.recent(part));
        return (
          <div className="mnt-strip-row" key={number}>
            <button
              className="mnt-strip-name"
              aria-pressed={isPicked}
              title={
                isPicked
                  ? trans.__('Show all ranks')
                  : trans.__('Show only rank %1', number)
              }
              onClick={() => pick(isPicked ? null : number)}
            >
              {!isMany && (
                <svg width="24" height="8" aria-hidden="true">
                  <path
                    d="M0 4h24"
                    stroke={theme.ranks[number % 4]}
                    strokeWidth="2"
                    strokeDasharray={DASHES[number % 4].join(' ')}
                  />
                </svg>
              )}{' '}
              <span className="b">{label}</span>{' '}
              <span className="m">{who}</span>
              {number === slowest && (
                <span className="b s nw"> ◀ {trans.__('slowest')}</span>
              )}
            </button>
            <span
              className="mnt-strip-bar"
              role="img"
              aria-label={PARTS.map(
                (part, i) => `${names[part]} ${formats.percent(shares[i])}`
              ).join(', ')}
            >
              {PARTS.map((part, i) => (
                <span
                  key={part}
                  className={`mnt-part-${part}`}
                  style={{ width: `${100 * (shares[i] || 0)}%` }}
                />
              ))}
            </span>
            {shares.map((share, i) => (
              <span
                key={PARTS[i]}
                className={`mnt-strip-number${i === 0 ? ' b' : ''}`}
                title={
                  PARTS[i] === 'send' && Number.isNaN(share)
                    ? trans.__('Not known: the link is not measured.')
                    : undefined
                }
              >
                {Number.isNaN(share)
                  ? formats.ABSENT
                  : (100 * share).toFixed(1)}
              </span>
            ))}
          </div>
        );
      })}
    </section>
  );
}

/** Many ranks by node: the darker the slower; a select does the same by keyboard. */
export function HeatStrip(props: IStripProps): JSX.Element | null {
  const { store, choice, pick, trans } = props;
  if (store.ranks.size < MANY_RANKS) {
    return null;
  }
  const ranks = store.sorted.map(rows => ({
    who: rows.who,
    pace: rows.table.recent('pace_tokens_per_s')
  }));
  const known = ranks
    .map(({ pace }) => pace)
    .filter(pace => !Number.isNaN(pace))
    .sort((a, b) => a - b);
  if (known.length === 0) {
    return null;
  }
  const median = known[known.length >> 1];
  const byNode = new Map<string, typeof ranks>();
  for (const rank of ranks) {
    byNode.set(rank.who.node, [...(byNode.get(rank.who.node) ?? []), rank]);
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
            {trans.__('against the median; darker is slower, ▼ from 5 %')}
          </span>
        </span>
        <label className="s mnt-heat-select">
          {trans.__('Show rank')}{' '}
          <select
            value={picked ?? ''}
            onChange={event => pick(Number(event.target.value))}
          >
            {ranks.map(({ who }) => (
              <option key={who.rank} value={who.rank}>
                {`${who.rank}, ${who.node}:${who.local_rank ?? 0}`}
                {who.rank === slowest ? ` (${trans.__('slowest')})` : ''}
              </option>
            ))}
          </select>
        </label>
      </div>
      <div className="mnt-heat-nodes" aria-hidden="true">
        {[...byNode].map(([node, cells]) => (
          <div key={node} className="mnt-heat-node">
            <div className="m s">{node}</div>
            <div className="mnt-heat-cells">
              {cells.map(({ who, pace }) => {
                const slower = Number.isNaN(pace) ? 0 : 1 - pace / median;
                const shade = Math.min(1, Math.max(0, 0.5 + slower / 0.1));
                return (
                  <span
                    key={who.rank}
                    className={`mnt-heat-cell${who.rank === picked ? ' mnt-picked' : ''}`}
                    style={{ opacity: 0.2 + 0.8 * shade }}
                    title={`r${who.rank} ${formats.rate(pace)} tok/s`}
                    onClick={() => pick(who.rank)}
                  >
                    {slower >= SLOW ? '▼' : ''}
                  </span>
                );
              })}
            </div>
          </div>
        ))}
      </div>
    </section>
  );
}
