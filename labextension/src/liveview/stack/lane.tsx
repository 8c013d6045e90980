/** Event lane above the charts: a mark where something happened to the job. */

import * as React from 'react';

import { trans } from '../../trans';
import type { Axis } from '../axis/axis';
import { pixelOf, type Range } from '../axis/range';
import { type IMark, type LaneEvent, markLabel, marksOf, told } from './events';
import type { ISaid } from './flag';
import type { IArea } from './overlay';

const HEIGHT = 22;

/** Largest width of a character, to check whether a text fits. */
const CHARACTER_PX = 6.6;

const GLYPHS: Record<LaneEvent['kind'], string> = {
  started: 'M-3 -4l7 4l-7 4z',
  resumed: 'M4 -1a4 4 0 1 0 -1 3.5M4 -5v4h-4',
  restarted: 'M4 -1a4 4 0 1 0 -1 3.5M4 -5v4h-4',
  saved: 'M-4 -4h8v8h-8zM-2 -4v3h4v-3',
  changed: 'M-4 -2.5h8M-4 2.5h8M-1.5 -4.5v4M1.5 0.5v4',
  stalled: 'M-2.5 -4v8M2.5 -4v8',
  slow: 'M-4 -4h8l-8 8h8z',
  'link-slow': 'M-4 -4h8l-8 8h8z',
  traffic: 'M-5 -2h7l-2 -2.5M5 2h-7l2 2.5',
  warning: 'M0 -4.5L5 4h-10zM0 -1.5v2.5',
  ended: 'M-3.5 -3.5h7v7h-7z',
  failed: 'M-3.5 -3.5l7 7m0 -7l-7 7',
  evaluated: 'M-3 -3h6v6h-6z'
};

const BAD = new Set(['failed', 'stalled', 'slow', 'link-slow', 'warning']);

export interface ILaneProps {
  events: LaneEvent[];
  /** Of one of several runs. */
  letter?: string;
  axis: Axis;
  span: Range;
  area: IArea;
  width: number;
  /** Describe what is pointed at or focused; `null` = nothing. */
  say: (said: ISaid | null) => void;
}

export function Lane(props: ILaneProps): JSX.Element | null {
  const { events, letter, axis, span, area, width, say } = props;
  if (!events.length) {
    return null;
  }
  const place = (time: number) =>
    pixelOf(axis.ofTime(time), span, area.left, area.width);
  const ends = [area.left, area.left + area.width] as const;
  const marks = marksOf(events, place, ends);
  return (
    <svg
      className="mnt-lane"
      role="list"
      aria-label={
        letter ? trans.__('Events of %1', letter) : trans.__('Events')
      }
      width={width}
      height={HEIGHT}
    >
      {letter && (
        <text className="b" x={4} y={HEIGHT / 2 + 3} aria-hidden="true">
          {letter}
        </text>
      )}
      {marks.map((mark, i) => (
        <Mark
          key={`${mark.main.kind} ${mark.main.time_s}`}
          mark={mark}
          room={(marks[i + 1]?.x ?? width) - mark.x - 22}
          say={say}
        />
      ))}
    </svg>
  );
}

function Mark(props: {
  mark: IMark;
  room: number;
  say: ILaneProps['say'];
}): JSX.Element {
  const { mark, room, say } = props;
  const { x, end, main, events } = mark;
  const words = markLabel(mark);
  const text = told(mark);
  const show = () => say({ x, text });
  const hide = () => say(null);
  return (
    <g
      role="listitem"
      tabIndex={0}
      className={BAD.has(main.kind) ? 'mnt-mark mnt-mark-bad' : 'mnt-mark'}
      data-kinds={events.map(one => one.kind).join(' ')}
      aria-label={text}
      onFocus={show}
      onBlur={hide}
      onPointerEnter={show}
      onPointerLeave={hide}
    >
      <rect className="mnt-mark-area" x={x - 12} width={24} height={HEIGHT} />
      {end !== null && (
        <rect
          className="mnt-mark-bar"
          x={x}
          y={HEIGHT - 3}
          width={Math.max(2, end - x)}
          height={3}
        />
      )}
      <path
        d={GLYPHS[main.kind]}
        transform={`translate(${x} ${HEIGHT / 2 - 1})`}
      />
      {words.length * CHARACTER_PX < room && (
        <text x={x + 10} y={HEIGHT / 2 + 3}>
          {words}
        </text>
      )}
    </g>
  );
}
