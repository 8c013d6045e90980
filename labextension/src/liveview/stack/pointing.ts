/** Pointing at charts: one pointer and one selection for all, by mouse and by keys. */

import * as React from 'react';

import type { Axis, ISample } from '../axis/axis';
import {
  type IZoom,
  moved,
  nearest,
  ordered,
  type Range,
  widened
} from '../axis/range';
import { nearestShown, reveal, rowAfter, xAt } from './places';
import type { IArea } from './overlay';

/** A drag over fewer pixels is a click. */
const CLICK_PX = 4;

export interface IPointable {
  axis: Axis;
  span: Range;
  whole: Range;
  area: IArea;
  isZoomed: boolean;
  /** `null` = show all steps. */
  zoom: (zoom: IZoom | null) => void;
}

export interface IPointing {
  pointed: ISample | null;
  selection: Range | null;
  handlers: React.HTMLAttributes<HTMLDivElement>;
}

interface IDrag {
  fromPx: number;
  from: number;
  /** Set if the drag moves the range; what it was. */
  pans: Range | null;
}

/** The pointer, the selection, and how they change. */
interface IHand {
  at: number | null;
  setAt: (at: number | null) => void;
  selection: Range | null;
  select: (range: Range | null) => void;
  drag: React.MutableRefObject<IDrag | null>;
  /** Where a selection by keys began. */
  anchor: React.MutableRefObject<number | null>;
  /** Last position of the mouse: browsers also report one at rest when content moves below it. */
  mouse: React.MutableRefObject<string>;
  cancel: () => void;
  zoomTo: (range: Range) => void;
}

export function usePointing(given: IPointable): IPointing {
  const { axis, zoom } = given;
  const [at, setAt] = React.useState<number | null>(null);
  const [selection, select] = React.useState<Range | null>(null);
  const drag = React.useRef<IDrag | null>(null);
  const anchor = React.useRef<number | null>(null);
  const mouse = React.useRef('');
  const cancel = () => {
    drag.current = anchor.current = null;
    select(null);
  };
  const zoomTo = (range: Range) => {
    cancel();
    zoom({ range: widened(range, axis.xs, given.whole), follows: false });
  };
  React.useEffect(() => {
    cancel();
    setAt(null);
  }, [axis.kind]);
  const row = at === null ? -1 : nearest(axis.xs, at);
  const hand = {
    ...{ at, setAt, selection, select, drag, anchor, mouse },
    ...{ cancel, zoomTo }
  };
  return {
    pointed: row < 0 ? null : axis.sample(row),
    selection,
    handlers: {
      onPointerDown: event => press(event, given, hand),
      onPointerMove: event => move(event, given, hand),
      onPointerUp: event => release(event, hand),
      onPointerCancel: cancel,
      onPointerLeave: () => !drag.current && setAt(null),
      onDoubleClick: () => zoom(null),
      onKeyDown: event => type(event, row, given, hand)
    }
  };
}

type Pointer = React.PointerEvent<HTMLElement>;

function pixel(event: Pointer): number {
  return event.clientX - event.currentTarget.getBoundingClientRect().left;
}

function isOver(px: number, { area }: IPointable): boolean {
  return px >= area.left && px <= area.left + area.width;
}

function press(event: Pointer, given: IPointable, hand: IHand): void {
  const px = pixel(event);
  const isChart = (event.target as Element).closest('.mnt-chart-body');
  if (event.button !== 0 || !isChart || !isOver(px, given)) {
    return;
  }
  event.currentTarget.setPointerCapture?.(event.pointerId);
  event.currentTarget.focus({ preventScroll: true });
  const pans = event.shiftKey && given.isZoomed ? given.span : null;
  hand.drag.current = { fromPx: px, from: xAt(px, given), pans };
  hand.select(null);
}

function move(event: Pointer, given: IPointable, hand: IHand): void {
  const px = pixel(event);
  const drag = hand.drag.current;
  const here = `${event.clientX} ${event.clientY}`;
  const rests = here === hand.mouse.current && hand.at !== null;
  hand.mouse.current = here;
  if (!drag && rests) {
    return;
  }
  if (!drag && !isOver(px, given)) {
    hand.setAt(null);
    return;
  }
  const { axis, area, whole, zoom } = given;
  const x = xAt(px, given);
  hand.setAt(axis.xs[nearestShown(x, given)] ?? null);
  if (drag?.pans) {
    const unit = (drag.pans[1] - drag.pans[0]) / area.width;
    const range = moved(drag.pans, (drag.fromPx - px) * unit, whole);
    zoom({ range, follows: false });
  } else if (drag) {
    hand.select(ordered(drag.from, x));
  }
}

function release(event: Pointer, hand: IHand): void {
  const { drag, selection } = hand;
  const distance = Math.abs(pixel(event) - (drag.current?.fromPx ?? 0));
  if (drag.current && !drag.current.pans && selection && distance >= CLICK_PX) {
    hand.zoomTo(selection);
  }
  hand.cancel();
}

function type(
  event: React.KeyboardEvent,
  row: number,
  given: IPointable,
  hand: IHand
): void {
  const { key, shiftKey, ctrlKey, metaKey, altKey } = event;
  const isOther = event.target !== event.currentTarget;
  if (isOther || ctrlKey || metaKey || altKey) {
    return;
  }
  const { selection, cancel } = hand;
  if (key === 'Escape') {
    if (!selection) {
      hand.setAt(null);
    }
    cancel();
  } else if (key === 'Enter' && selection) {
    hand.zoomTo(selection);
  } else if (key === '0') {
    cancel();
    given.zoom(null);
  } else if (!step(key, shiftKey, row, given, hand)) {
    return;
  }
  event.preventDefault();
}

/** Move the pointer by a key, and select on the way if asked; whether the key moves it. */
function step(
  key: string,
  selects: boolean,
  row: number,
  given: IPointable,
  hand: IHand
): boolean {
  const { xs } = given.axis;
  const next = rowAfter(key, row, given);
  if (next === null) {
    return false;
  }
  hand.setAt(xs[next]);
  if (selects) {
    hand.anchor.current ??= xs[row < 0 ? next : row];
    hand.select(ordered(hand.anchor.current, xs[next]));
  } else {
    hand.cancel();
  }
  reveal(xs[next], given);
  return true;
}
