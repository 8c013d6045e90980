/** Chart toolbar: range, scale, link, pause, table, copy. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Icon } from '../icons';
import type { SeriesStore } from '../series/store';
import type { IChoice } from './charts/chart';
import type { Scale } from './charts/scale';

/** Choices of the toolbar. */
export interface ILook {
  /** Seconds shown, up to now; `null` = all. */
  range: number | null;
  scale: Scale;
  choice: IChoice;
  isTable: boolean;
}

export const FIRST_LOOK: ILook = {
  range: null,
  scale: 'auto',
  choice: { rank: null, node: null },
  isTable: false
};

const RANGES: [string, number][] = [
  ['10 min', 600],
  ['1 h', 3600]
];

export interface IToolbarProps {
  store: SeriesStore;
  look: ILook;
  change: (look: Partial<ILook>) => void;
  isPaused: boolean;
  pause: (isPaused: boolean) => void;
  copyCsv: () => void;
  trans: TranslationBundle;
}

export function Toolbar(props: IToolbarProps): JSX.Element {
  const { store, look, change, isPaused, pause, copyCsv, trans } = props;
  return (
    <div
      className="mnt-controls"
      role="toolbar"
      aria-label={trans.__('Charts')}
    >
      <RangeButtons {...props} />
      <ScaleSelect {...props} />
      {store.links.size > 2 && <LinkSelect {...props} />}
      <span className="sp" />
      <button
        className="btn"
        aria-pressed={isPaused}
        onClick={() => pause(!isPaused)}
      >
        <Icon name={isPaused ? 'resume' : 'pause'} size={12} />
        {isPaused ? trans.__('Resume') : trans.__('Pause')}
      </button>
      <button
        className="btn"
        aria-pressed={look.isTable}
        onClick={() => change({ isTable: !look.isTable })}
      >
        <Icon name="table" size={12} /> {trans.__('Table')}
      </button>
      <button className="btn" onClick={copyCsv}>
        {trans.__('Copy CSV')}
      </button>
    </div>
  );
}

function RangeButtons({ look, change, trans }: IToolbarProps): JSX.Element {
  const all: [string, number | null] = [trans.__('All'), null];
  return (
    <span className="mnt-group" role="group" aria-label={trans.__('Range')}>
      {[...RANGES, all].map(([label, seconds]) => (
        <button
          key={label}
          className="btn"
          aria-pressed={look.range === seconds}
          onClick={() => change({ range: seconds })}
        >
          {label}
        </button>
      ))}
    </span>
  );
}

function ScaleSelect({ look, change, trans }: IToolbarProps): JSX.Element {
  return (
    <label className="s">
      {trans.__('Scale')}{' '}
      <select
        value={look.scale}
        onChange={event => change({ scale: event.target.value as Scale })}
      >
        <option value="auto">{trans.__('auto')}</option>
        <option value="zero">{trans.__('linear, from 0')}</option>
        <option value="log">{trans.__('logarithmic')}</option>
      </select>
    </label>
  );
}

function LinkSelect(props: IToolbarProps): JSX.Element {
  const { store, look, change, trans } = props;
  return (
    <label className="s">
      {trans.__('Link of')}{' '}
      <select
        value={look.choice.node ?? ''}
        onChange={event =>
          change({
            choice: { ...look.choice, node: event.target.value || null }
          })
        }
      >
        <option value="">{trans.__('the busiest node')}</option>
        {[...store.links.keys()].map(node => (
          <option key={node} value={node}>
            {node}
          </option>
        ))}
      </select>
    </label>
  );
}
