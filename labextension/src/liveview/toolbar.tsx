/** Chart toolbar: range, scale, link, pause, table, copy. */

import * as React from 'react';

import { Button, Select } from '../controls';
import type { SeriesStore } from '../series/store';
import { type AxisKind, hasTokens } from './axis/axis';
import type { IZoom } from './axis/range';
import { SMOOTHINGS } from './axis/smoothing';
import { axisNames } from './axis/ticks';
import type { IChoice } from './charts/chart';
import type { Scale } from './charts/scale';
import { trans } from '../trans';

/** Choices of the toolbar. */
export interface ILook {
  /** Seconds shown, up to now; `null` = all. */
  range: number | null;
  /** Chosen range; `null` = as `range` says. */
  zoom: IZoom | null;
  axis: AxisKind;
  /** Weight of the running mean at each value; 0 = raw values. */
  smoothing: number;
  scale: Scale;
  choice: IChoice;
  isTable: boolean;
}

export const FIRST_LOOK: ILook = {
  range: null,
  zoom: null,
  axis: 'time',
  smoothing: 0,
  scale: 'auto',
  choice: { rank: null, node: null },
  isTable: false
};

const RANGES: ReadonlyArray<readonly [string, number | null]> = [
  ['10 min', 600],
  ['1 h', 3600]
];

export interface IToolbarProps {
  store: SeriesStore;
  look: ILook;
  change: (look: Partial<ILook>) => void;
  isPaused: boolean;
  pause: (isPaused: boolean) => void;
  goToNow: () => void;
  children: React.ReactNode;
}

export function Toolbar(props: IToolbarProps): JSX.Element {
  const { store, look, change, isPaused, pause, goToNow, children } = props;
  return (
    <div
      className="mnt-controls"
      role="toolbar"
      aria-label={trans.__('Charts')}
    >
      <span className="mnt-group" role="group" aria-label={trans.__('Range')}>
        {[...RANGES, [trans.__('All'), null] as const].map(([label, range]) => (
          <Button
            key={label}
            label={label}
            isPressed={!look.zoom && look.range === range}
            run={() => change({ range, zoom: null })}
          />
        ))}
      </span>
      <LookChoices
        {...{ look, change }}
        kinds={(['step', 'tokens', 'time'] as const).filter(
          kind => kind !== 'tokens' || hasTokens(store)
        )}
      />
      <LinkChoice {...{ store, look, change }} />
      <span className="sp" />
      {isPaused || (look.zoom && !look.zoom.follows) ? (
        <Button icon="resume" label={trans.__('Go to now')} run={goToNow} />
      ) : (
        <Button
          icon="pause"
          label={trans.__('Pause')}
          run={() => pause(true)}
        />
      )}
      <Button
        icon="table"
        label={trans.__('Table')}
        isPressed={look.isTable}
        run={() => change({ isTable: !look.isTable })}
      />
      {children}
    </div>
  );
}

/** How the charts of a job, or of several runs, are drawn. */
export type ChartLook = Pick<ILook, 'zoom' | 'axis' | 'smoothing' | 'scale'>;

export function LookChoices(props: {
  /** Axes to choose from. */
  kinds: ReadonlyArray<AxisKind>;
  look: ChartLook;
  change: (look: Partial<ChartLook>) => void;
}): JSX.Element {
  const { kinds, look, change } = props;
  return (
    <>
      <Select<AxisKind>
        label={trans.__('Axis')}
        value={look.axis}
        options={kinds.map(kind => [kind, axisNames()[kind]])}
        pick={axis => change({ axis, zoom: null })}
      />
      <Select<number>
        label={trans.__('Smoothing')}
        value={look.smoothing}
        options={SMOOTHINGS.map(one => [
          one,
          one === 0 ? trans.__('off') : one
        ])}
        pick={smoothing => change({ smoothing })}
      />
      <Select<Scale>
        label={trans.__('Scale')}
        value={look.scale}
        options={[
          ['auto', trans.__('auto')],
          ['zero', trans.__('linear, from 0')],
          ['log', trans.__('logarithmic')]
        ]}
        pick={scale => change({ scale })}
      />
    </>
  );
}

/** Whose link is shown, if there are more than two. */
function LinkChoice(
  props: Pick<IToolbarProps, 'store' | 'look' | 'change'>
): JSX.Element | null {
  const { store, look, change } = props;
  const { choice } = look;
  return store.links.size > 2 ? (
    <Select<string | null>
      label={trans.__('Link of')}
      value={choice.node}
      options={[
        [null, trans.__('the busiest node')],
        ...[...store.links.keys()].map(node => [node, node] as const)
      ]}
      pick={node => change({ choice: { ...choice, node } })}
    />
  ) : null;
}
