/** Gantt chart of steps below each other: what each rank computes, sends and waits for. */

import * as React from 'react';

import * as formats from '../../formats';
import type { ShownStep, StepSpan } from '../../schema';
import { trans } from '../../trans';
import {
  barsOf,
  type IBar,
  type ITimeAxis,
  LANE,
  laneOf,
  place,
  ROW,
  type SpanKind,
  timeTicks
} from './bars';

const TITLE = 20;
const FOOT = 18;
const TICK_SPACE = 90;
const LEAST_NUMBERED = 14;

/** Half the width of a time on the axis. */
const MARGIN = 24;

export interface ITitled {
  title: string;
  step: ShownStep;
}

/** Names of what a rank does, in the order of the legend. */
export function kindWords(): Record<SpanKind, string> {
  return {
    F: trans.__('forward'),
    B: trans.__('backward'),
    I: trans.__('input gradient'),
    W: trans.__('weight gradient'),
    update: trans.__('optimizer'),
    wait: trans.__('wait'),
    send: trans.__('send'),
    receive: trans.__('receive')
  };
}

/** What a span is, for a tooltip. */
export function spanText(
  { kind, microbatch, peer, begin_s, end_s }: StepSpan,
  row: number,
  names: ReadonlyArray<string>
): string {
  const words = [`${names[row]}: ${kindWords()[kind]}`];
  if (typeof microbatch === 'number') {
    words.push(trans.__('microbatch %1', microbatch + 1));
  }
  if (typeof peer === 'number') {
    const other = names[peer];
    words.push(
      kind === 'send' ? trans.__('to %1', other) : trans.__('from %1', other)
    );
  }
  return [...words, formats.latency(end_s - begin_s)].join(', ');
}

/** Redrawn only if steps or width change, as it may have thousands of bars. */
export const Gantt = React.memo(function Gantt(props: {
  steps: ReadonlyArray<ITitled>;
  width: number;
}): JSX.Element | null {
  const { steps, width } = props;
  const axis: ITimeAxis = {
    left: Math.min(160, Math.round(width / 3)),
    right: width - MARGIN,
    end: Math.max(0, ...steps.map(({ step }) => step.spans.seconds))
  };
  const ticks = timeTicks(axis.end, (axis.right - axis.left) / TICK_SPACE);
  if (ticks.length === 0) {
    return null;
  }
  const tops = [0];
  for (const { step } of steps) {
    tops.push(tops[tops.length - 1] + TITLE + step.spans.ranks.length * ROW);
  }
  const bottom = tops[steps.length];
  return (
    <>
      <svg
        className="mnt-gantt"
        role="img"
        aria-label={steps.map(headline).join('; ')}
        width={width}
        height={bottom + FOOT}
      >
        {ticks.map(time => {
          const x = place(time, axis);
          return (
            <React.Fragment key={time}>
              <path d={`M${x} ${TITLE}V${bottom}`} />
              <text x={x} y={bottom + 13} textAnchor="middle">
                {time ? formats.seconds(time) : 0}
              </text>
            </React.Fragment>
          );
        })}
        {steps.map((one, i) => (
          <g key={i} transform={`translate(0 ${tops[i]})`}>
            <Step {...one} axis={axis} />
          </g>
        ))}
      </svg>
      <Legend {...{ steps }} />
    </>
  );
});

function headline({ title, step }: ITitled): string {
  const { names, spans } = step;
  const more = names.length - spans.ranks.length;
  return [
    title,
    formats.seconds(spans.seconds),
    ...(more > 0 ? [trans.__('%1 more ranks', more)] : [])
  ].join(', ');
}

function Step(props: ITitled & { axis: ITimeAxis }): JSX.Element {
  const { step, axis } = props;
  const { left } = axis;
  const { names, spans } = step;
  return (
    <>
      <text y={13} fontWeight="600">
        {headline(props)}
      </text>
      {spans.ranks.map((_, row) => (
        <g key={row} transform={`translate(0 ${TITLE + row * ROW})`}>
          <svg width={left - 6} height={LANE}>
            <text y={14}>{names[row]}</text>
          </svg>
          <rect
            className="mnt-span-wait"
            x={left}
            width={place(spans.seconds, axis) - left}
            height={LANE}
          />
        </g>
      ))}
      {barsOf(step, axis).map((bar, i) => (
        <Bar key={i} {...{ bar, names }} />
      ))}
    </>
  );
}

function Bar(props: { bar: IBar; names: ReadonlyArray<string> }): JSX.Element {
  const { bar, names } = props;
  const { span, row, x, width, height } = bar;
  const { kind, microbatch } = span;
  const y = TITLE + row * ROW + bar.y;
  return (
    <>
      <rect className={`mnt-span-${kind}`} {...{ x, y, width, height }}>
        <title>{spanText(span, row, names)}</title>
      </rect>
      {'FBI'.includes(kind) && width >= LEAST_NUMBERED && (
        <text x={x + width / 2} y={y + 14} textAnchor="middle">
          {(microbatch ?? 0) + 1}
        </text>
      )}
    </>
  );
}

function Legend(props: { steps: ReadonlyArray<ITitled> }): JSX.Element {
  const spans = props.steps.flatMap(({ step }) => step.spans.ranks.flat());
  const words = Object.entries(kindWords()).filter(([kind]) =>
    spans.some(span => span.kind === kind)
  );
  return (
    <p className="mnt-gantt-legend s">
      {words.map(([kind, word]) => {
        const height = Math.min(9, laneOf(kind as SpanKind).height);
        return (
          <span key={kind}>
            <svg width="22" height="11" aria-hidden="true">
              <rect
                className={`mnt-span-${kind}`}
                x={1}
                y={(11 - height) / 2}
                width={20}
                height={height}
              />
            </svg>{' '}
            {word}
          </span>
        );
      })}
      <span className="m">
        {trans.__('numbers are microbatches; thin lanes are messages')}
      </span>
    </p>
  );
}
