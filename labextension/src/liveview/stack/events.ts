/** Events of a job for the lane above the charts: in words, and grouped where they are close. Pure. */

import * as formats from '../../formats';
import { problemText } from '../../problem';
import type { JobEvent } from '../../schema';
import type { SeriesStore } from '../../series/store';
import { trans } from '../../trans';

/** An event of the summary, or an evaluation, which is a row of the series. */
export type LaneEvent = Omit<JobEvent, 'kind'> & {
  kind: JobEvent['kind'] | 'evaluated';
  loss?: number;
};

/** Events that share one mark. */
export interface IMark {
  /** Pixels from the left. */
  x: number;
  /** Where the longest of them ends, in pixels; `null` = all are moments. */
  end: number | null;
  events: LaneEvent[];
  /** The most important one. */
  main: LaneEvent;
}

/** Most important first. */
const IMPORTANCE: ReadonlyArray<LaneEvent['kind']> = [
  'failed',
  'stalled',
  'link-slow',
  'slow',
  'warning',
  'restarted',
  'resumed',
  'started',
  'changed',
  'traffic',
  'saved',
  'ended',
  'evaluated'
];

/** Marks closer than this, in pixels, are merged. */
const NEAR = 14;

/** Number of events of a mark that are listed individually. */
const MOST_TOLD = 4;

/** Everything that happened, oldest first. */
export function laneEvents(store: SeriesStore): LaneEvent[] {
  const { evaluation } = store;
  const [times, steps, losses] = (['time_s', 'step', 'loss'] as const).map(
    name => evaluation.column(name)
  );
  const evaluations = Array.from(times, (time_s, row): LaneEvent => ({
    kind: 'evaluated',
    time_s,
    step: steps[row],
    loss: losses[row]
  }));
  return [...(store.summary?.events ?? []), ...evaluations].sort(
    (a, b) => a.time_s - b.time_s
  );
}

/** Events as marks, from left to right. */
export function marksOf(
  events: ReadonlyArray<LaneEvent>,
  place: (time: number) => number,
  [left, right]: readonly [number, number]
): IMark[] {
  const marks: IMark[] = [];
  for (const event of events) {
    const x = place(event.time_s);
    const isLong = event.kind === 'traffic' || Boolean(event.end_s);
    const to = isLong ? (event.end_s ? place(event.end_s) : right) : null;
    const end = to === null ? null : Math.min(to, right);
    if (x > right || (end ?? x) < left || Number.isNaN(x)) {
      continue;
    }
    const from = Math.max(x, left);
    const last = marks[marks.length - 1];
    if (last && from - last.x < NEAR) {
      last.events.push(event);
      last.end = Math.max(last.end ?? -1, end ?? -1);
      last.end = last.end < 0 ? null : last.end;
      last.main = moreImportant(last.main, event);
    } else {
      marks.push({ x: from, end, events: [event], main: event });
    }
  }
  return marks;
}

function moreImportant(a: LaneEvent, b: LaneEvent): LaneEvent {
  return IMPORTANCE.indexOf(b.kind) < IMPORTANCE.indexOf(a.kind) ? b : a;
}

/** A few words, next to the mark. */
function label(event: LaneEvent): string {
  const { kind, step, node } = event;
  const words: Record<LaneEvent['kind'], string> = {
    started: trans.__('started'),
    resumed: trans.__('resumed from %1', formats.count(step)),
    restarted: trans.__('restarted'),
    saved: trans.__('saved at %1', formats.count(step)),
    changed: trans.__('settings changed'),
    stalled: trans.__('stalled'),
    slow: event.label || trans.__('slow'),
    'link-slow': event.label || trans.__('link slow'),
    traffic: trans.__('other traffic on %1', node ?? ''),
    warning: event.label ?? '',
    ended: trans.__('ended'),
    failed: trans.__('failed'),
    evaluated: trans.__('evaluated')
  };
  return words[kind];
}

/** A few words for all events of a mark: `saved at 420, 2 more`. */
export function markLabel({ main, events }: IMark): string {
  const more = events.length - 1;
  return more ? trans.__('%1, %2 more', label(main), more) : label(main);
}

/** The event in a full sentence, with its time. */
export function sentence(event: LaneEvent): string {
  const { kind, time_s, end_s, step, problem } = event;
  const lasted = end_s
    ? trans.__(', for %1', formats.duration(end_s - time_s))
    : '';
  const what = (): string => {
    if (problem) {
      return problemText(problem);
    }
    if (kind === 'saved') {
      return trans.__('checkpoint of step %1 saved', formats.count(step));
    }
    if (kind === 'changed') {
      return trans.__(
        'changed after step %1: %2',
        formats.count(step),
        event.label ?? ''
      );
    }
    if (kind === 'evaluated') {
      return trans.__(
        'evaluation after step %1, loss %2',
        formats.count(step),
        formats.loss(event.loss)
      );
    }
    if (kind === 'traffic') {
      return trans.__(
        'other traffic on the link of %1, up to %2 of its capacity',
        event.node ?? '',
        formats.percent(event.share)
      );
    }
    return kind === 'resumed'
      ? trans.__('resumed from step %1', formats.count(step))
      : label(event);
  };
  return `${formats.clock(time_s, true)}: ${what()}${lasted}`;
}

/** All events of a mark, in sentences. */
export function told(mark: IMark): string {
  const rest = mark.events.length - MOST_TOLD;
  return [
    ...mark.events.slice(0, MOST_TOLD).map(sentence),
    ...(rest > 0 ? [trans.__('%1 more', rest)] : [])
  ].join('; ');
}
