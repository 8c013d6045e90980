/** Pipeline strip: shares of a step, a bar per stage. */

import * as React from 'react';

import * as formats from '../../formats';
import { Measured } from '../../measured';
import { MANY_RANKS } from '../../schema';
import type { IRankRows, SeriesStore } from '../../series/store';
import type { IChoice } from '../charts/chart';
import { slowestRank } from '../charts/rank_lines';
import { DASHES, type ITheme } from '../charts/theme';
import { trans } from '../../trans';

const PARTS = ['compute', 'coding', 'send', 'wait', 'schedule_bubble'] as const;

type Part = (typeof PARTS)[number];

export interface IStripProps {
  store: SeriesStore;
  theme: ITheme;
  choice: IChoice;
  pick: (rank: number | null) => void;
}

interface IRow {
  parts: ReadonlyArray<Part>;
  rows: IRankRows;
  label: string;
  who: string;
}

export function PipelineStrip(props: IStripProps): JSX.Element | null {
  const { store } = props;
  const rows = rowsOf(store);
  if (rows.length === 0) {
    return null;
  }
  const words = partWords();
  const { parts } = rows[0];
  return (
    <section
      className={`mnt-strip${parts.includes('coding') ? ' mnt-strip-coding' : ''}`}
      aria-label={trans.__('Pipeline, share of a step')}
    >
      <div className="mnt-strip-head">
        <span className="b">
          {store.ranks.size >= MANY_RANKS
            ? trans.__('Pipeline, share of a step, %, slowest of each stage')
            : trans.__('Pipeline, share of a step, %')}
        </span>
        {parts.map(part => (
          <span
            key={part}
            className="mnt-strip-key s"
            title={words[part].meaning}
          >
            <span className={`mnt-swatch mnt-part-${part}`} />{' '}
            {words[part].name}
          </span>
        ))}
      </div>
      {rows.map(row => (
        <StripRow key={row.rows.who.rank} {...props} {...row} />
      ))}
    </section>
  );
}

/** Name and meaning of each share. */
function partWords(): Record<Part, { name: string; meaning: string }> {
  return {
    compute: {
      name: trans.__('computing'),
      meaning: trans.__('Forward, backward and the optimizer')
    },
    coding: {
      name: trans.__('encoding'),
      meaning: trans.__(
        'Encoding and decoding what is sent to other nodes in fewer bits'
      )
    },
    send: {
      name: trans.__('sending'),
      meaning: trans.__(
        'Bytes sent to other nodes over the link’s measured capacity'
      )
    },
    wait: {
      name: trans.__('waiting'),
      meaning: trans.__('The rest of the step')
    },
    schedule_bubble: {
      name: trans.__('schedule’s own bubble'),
      meaning: trans.__('The schedule’s own bubble, at this rank’s pace')
    }
  };
}

function rowsOf(store: SeriesStore): IRow[] {
  const shown = store.sorted.filter(rows => formats.isKnown(rows.who.compute));
  const stageOf = ({ who }: IRankRows) => (who.stages ?? []).join(', ');
  const isCoding = shown.some(rows => formats.isKnown(rows.who.coding));
  const parts = PARTS.filter(part => part !== 'coding' || isCoding);
  const rowOf = (rows: IRankRows): IRow => ({
    parts,
    rows,
    label: stageOf(rows)
      ? trans.__('stage %1', stageOf(rows))
      : trans.__('rank %1', rows.who.rank),
    who: `r${rows.who.rank} ${rows.who.node}:${rows.who.local_rank ?? 0}`
  });
  if (store.ranks.size < MANY_RANKS) {
    return shown.map(rowOf);
  }
  // The slowest replica of a stage sets the pace.
  const pace = (rows: IRankRows) => rows.who.pace_tokens_per_s ?? NaN;
  const slowest = new Map<string, IRankRows>();
  for (const rows of shown) {
    const before = slowest.get(stageOf(rows));
    if (!before || pace(rows) < pace(before)) {
      slowest.set(stageOf(rows), rows);
    }
  }
  return slowest.size < 2 ? [] : [...slowest.values()].map(rowOf);
}

function StripRow(props: IStripProps & IRow): JSX.Element {
  const { parts, rows } = props;
  const words = partWords();
  const shares = parts.map(part => rows.who[part] ?? NaN);
  return (
    <div className="mnt-strip-row">
      <RowName {...props} />
      <span
        className="mnt-strip-bar"
        role="img"
        aria-label={parts
          .map((part, i) => `${words[part].name} ${formats.percent(shares[i])}`)
          .join(', ')}
      >
        {parts.map((part, i) => (
          <span
            key={part}
            className={`mnt-part-${part}`}
            style={{ width: `${100 * (shares[i] || 0)}%` }}
          />
        ))}
      </span>
      {parts.map((part, i) => (
        <span
          key={part}
          className={`mnt-strip-number${i === 0 ? ' b' : ''}`}
          title={[
            words[part].meaning,
            ...(part === 'coding' ? noiseOf(rows) : [])
          ].join('; ')}
        >
          <Measured
            value={shares[i]}
            write={formats.bareShare}
            reason={
              part === 'send'
                ? trans.__('The link’s capacity is not measured.')
                : trans.__('This rank does not report it.')
            }
          />
        </span>
      ))}
    </div>
  );
}

/** How much larger what a rank sends in fewer bits is than what is lost by that. */
function noiseOf(rows: IRankRows): string[] {
  return (rows.who.compared_transfers ?? []).map(one =>
    trans.__(
      '%1 dB of signal to noise to stage %2',
      Math.round(one.ratio_db ?? 0),
      one.is_gradient ? one.boundary : one.boundary + 1
    )
  );
}

/** Button that shows only this rank in the charts, or all again. */
function RowName(props: IStripProps & IRow): JSX.Element {
  const { store, theme, choice, pick, rows, label, who } = props;
  const { rank } = rows.who;
  const isPicked = choice.rank === rank;
  return (
    <button
      className="mnt-strip-name"
      aria-pressed={isPicked}
      title={
        isPicked
          ? trans.__('Show all ranks')
          : trans.__('Show only rank %1', rank)
      }
      onClick={() => pick(isPicked ? null : rank)}
    >
      {store.ranks.size < MANY_RANKS && (
        <svg width="24" height="8" aria-hidden="true">
          <path
            d="M0 4h24"
            stroke={theme.ranks[rank % 4]}
            strokeWidth="2"
            strokeDasharray={DASHES[rank % 4].join(' ')}
          />
        </svg>
      )}{' '}
      <span className="b">{label}</span> <span className="m">{who}</span>
      {rank === slowestRank(store) && (
        <span className="b s nw"> ◀ {trans.__('slowest')}</span>
      )}
    </button>
  );
}
