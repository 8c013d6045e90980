/** Pipeline strip: shares of a step, a bar per stage. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import * as formats from '../../formats';
import { Measured } from '../../measured';
import type { IRankRows, SeriesStore } from '../../series/store';
import type { IChoice } from '../charts/chart';
import { MANY_RANKS, slowestRank } from '../charts/rank_lines';
import { DASHES, type ITheme } from '../charts/theme';

const PARTS = ['compute', 'send', 'wait', 'bubble'] as const;

type Part = (typeof PARTS)[number];

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

export function PipelineStrip(props: IStripProps): JSX.Element | null {
  const { store, trans } = props;
  const rows = rowsOf(store, trans);
  if (rows.length === 0) {
    return null;
  }
  const words = partWords(trans);
  return (
    <section
      className="mnt-strip"
      aria-label={trans.__('Pipeline, share of a step')}
    >
      <div className="mnt-strip-head">
        <span className="b">
          {store.ranks.size >= MANY_RANKS
            ? trans.__('Pipeline, share of a step, %, slowest of each stage')
            : trans.__('Pipeline, share of a step, %')}
        </span>
        {PARTS.map(part => (
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
function partWords(
  trans: TranslationBundle
): Record<Part, { name: string; meaning: string }> {
  return {
    compute: {
      name: trans.__('computing'),
      meaning: trans.__('Forward, backward and the optimizer')
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
    bubble: {
      name: trans.__('bubble'),
      meaning: trans.__('The schedule’s own bubble, at this rank’s pace')
    }
  };
}

function rowsOf(store: SeriesStore, trans: TranslationBundle): IRow[] {
  const shown = store.sorted.filter(rows => formats.isKnown(rows.who.compute));
  const who = ({ who }: IRankRows) =>
    `r${who.rank} ${who.node}:${who.local_rank ?? 0}`;
  if (store.ranks.size < MANY_RANKS) {
    return shown.map(rows => ({
      rows,
      label: rows.who.stages?.length
        ? trans.__('stage %1', rows.who.stages.join(', '))
        : trans.__('rank %1', rows.who.rank),
      who: who(rows)
    }));
  }
  const byStage = new Map<string, IRankRows[]>();
  for (const rows of shown) {
    const stage = (rows.who.stages ?? []).join(', ');
    byStage.set(stage, [...(byStage.get(stage) ?? []), rows]);
  }
  if (byStage.size < 2) {
    return [];
  }
  // The slowest replica of a stage sets the pace.
  const pace = (rows: IRankRows) => rows.who.pace_tokens_per_s ?? NaN;
  return [...byStage].map(([stage, replicas]) => {
    const rows = replicas.reduce((a, b) => (pace(b) < pace(a) ? b : a));
    return { rows, label: trans.__('stage %1', stage), who: who(rows) };
  });
}

function StripRow(props: IStripProps & IRow): JSX.Element {
  const { rows, trans } = props;
  const words = partWords(trans);
  const shares = PARTS.map(part => rows.who[part] ?? NaN);
  return (
    <div className="mnt-strip-row">
      <RowName {...props} />
      <span
        className="mnt-strip-bar"
        role="img"
        aria-label={PARTS.map(
          (part, i) => `${words[part].name} ${formats.percent(shares[i])}`
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
      {PARTS.map((part, i) => (
        <span
          key={part}
          className={`mnt-strip-number${i === 0 ? ' b' : ''}`}
          title={words[part].meaning}
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

/** Button that shows only this rank in the charts, or all again. */
function RowName(props: IStripProps & IRow): JSX.Element {
  const { store, theme, choice, pick, trans, rows, label, who } = props;
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
