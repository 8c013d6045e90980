/** Chart stack: all charts of a job on one horizontal axis, with one pointer. */

import * as React from 'react';

import { Button } from '../../controls';
import type { Detail } from '../../series/detail';
import type { SeriesStore } from '../../series/store';
import { trans } from '../../trans';
import { Axis, type AxisKind } from '../axis/axis';
import { before, type IZoom, type Range, shownRange } from '../axis/range';
import { smooth } from '../axis/smoothing';
import { type ISampleWords, JOB_WORDS } from '../axis/ticks';
import type { IChart, IChartInput } from '../charts/chart';
import { charts } from '../charts/charts';
import { Plot, plotArea } from '../charts/plot';
import type { Scale } from '../charts/scale';
import type { ITheme } from '../charts/theme';
import type { ILook } from '../toolbar';
import { laneEvents, type LaneEvent } from './events';
import { Flag, type ISaid } from './flag';
import { Lane } from './lane';
import { Overview } from './overview';
import { usePointing } from './pointing';

export function Charts(
  props: IChartInput & {
    look: ILook;
    change: (look: Partial<ILook>) => void;
    width: number;
    detail: Detail;
  }
): JSX.Element {
  const { store, theme, look, change, width, detail } = props;
  const drawn = (from: SeriesStore) => {
    const axis = Axis.of(from, look.axis);
    const shown = charts({ ...props, store: from }).map(chart =>
      smooth(axis.place(chart), look.smoothing)
    );
    return { axis, shown };
  };
  const all = drawn(store);
  const { axis, shown } = all;
  const whole = wholeRange(axis, shown);
  const since =
    look.range === null
      ? whole[0]
      : axis.ofTime(axis.timeOf(whole[1]) - look.range);
  const span = shownRange(look.zoom, whole, since);
  const isStill = look.zoom !== null && !look.zoom.follows;
  const fine = isStill ? detail.look(axis.stepsOf(span), store) : null;
  return (
    <Stack
      {...{ all, whole, theme, width, span }}
      {...(fine ? drawn(fine) : all)}
      lanes={[{ key: 'job', axis, events: laneEvents(store) }]}
      words={JOB_WORDS}
      kind={axis.kind}
      scale={look.scale}
      zoomed={look.zoom}
      zoom={zoom => change(zoom ? { zoom } : { zoom, range: null })}
    />
  );
}

/** From the first step or evaluation on; link samples start earlier. */
export function wholeRange(axis: Axis, shown: IChart[]): Range {
  const ends = shown
    .filter(chart => chart.key !== 'links')
    .flatMap(chart => chart.lines.map(line => line.x))
    .concat([axis.xs])
    .filter(xs => xs.length > 0);
  return ends.reduce<Range>(
    ([from, to], xs) => [
      Math.min(from, xs[0]),
      Math.max(to, xs[xs.length - 1])
    ],
    [Infinity, -Infinity]
  );
}

interface IDrawn {
  axis: Axis;
  shown: IChart[];
}

interface ILane {
  key: string;
  /** Of one of several runs. */
  letter?: string;
  axis: Axis;
  events: LaneEvent[];
}

export interface IStackProps extends IDrawn {
  /** Of all steps, where `shown` is only of some. */
  all?: IDrawn;
  lanes: ILane[];
  words: ISampleWords;
  whole: Range;
  span: Range;
  kind: AxisKind;
  theme: ITheme;
  scale: Scale;
  width: number;
  zoomed: IZoom | null;
  zoom: (zoom: IZoom | null) => void;
}

/** Charts with one pointer and one selection. */
export function Stack(props: IStackProps): JSX.Element {
  const { axis, shown, whole, span, theme, scale, width, zoomed, zoom } = props;
  const { words } = props;
  const area = plotArea(width);
  const isZoomed = zoomed !== null;
  const { pointed, selection, handlers } = usePointing({
    ...{ axis, span, whole, area, isZoomed, zoom }
  });
  const last = shown.filter(chart => !chart.note).pop();
  const [said, say] = React.useState<ISaid | null>(null);
  const keys = React.useId();
  return (
    <>
      {isZoomed && <ZoomLine {...{ axis, span, words, zoom }} />}
      <div
        className="mnt-charts"
        role="group"
        tabIndex={0}
        aria-label={trans.__('Charts')}
        aria-describedby={keys}
        data-lm-suppress-shortcuts="true"
        data-from={span[0]}
        data-to={span[1]}
        {...handlers}
      >
        <span id={keys} className="mnt-visually-hidden">
          {trans.__(
            'Arrow keys move the pointer by a step, with Shift they select. Enter zooms to the selection, 0 shows all steps.'
          )}
        </span>
        <Flag
          {...{ area, width, span }}
          x={pointed?.x ?? null}
          said={said}
          text={pointed ? words.sample(pointed) : ''}
        />
        {props.lanes.map(lane => (
          <Lane {...{ span, area, width, say }} {...lane} key={lane.key} />
        ))}
        {shown.map(chart => (
          <Plot
            key={chart.key}
            {...{ chart, theme, scale, span, width, selection }}
            axis={props.kind}
            pointed={pointed?.x ?? null}
            readAt={zoomed && !zoomed.follows ? span[1] : null}
            showsAxis={chart === last}
          />
        ))}
      </div>
      {isZoomed && (
        <Overview
          {...(props.all ?? { axis, shown })}
          {...{ whole, span, area, words, zoom }}
        />
      )}
    </>
  );
}

/** What is shown while zoomed, and the way back. */
function ZoomLine(props: {
  axis: Axis;
  span: Range;
  words: ISampleWords;
  zoom: (zoom: IZoom | null) => void;
}): JSX.Element {
  const { axis, span, words, zoom } = props;
  const first = Math.min(before(axis.xs, span[0] - 1e-9) + 1, axis.length - 1);
  const last = Math.max(before(axis.xs, span[1] + 1e-9), 0);
  return (
    <div className="mnt-zoom-line">
      <span className="b">
        {axis.length > 0 && words.range(axis.sample(first), axis.sample(last))}
      </span>
      <Button label={trans.__('All steps')} run={() => zoom(null)} />
      <span className="m s">
        {trans.__('Shift and drag moves the range; Esc ends a selection')}
      </span>
    </div>
  );
}
