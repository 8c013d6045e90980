/** Which steps the rates cover, and what the time was spent on. */

import * as React from 'react';

import * as formats from '../../formats';
import type { JobNumbers } from '../../schema';
import { trans } from '../../trans';
import type { IViewProps } from '../props';

/** Step times that vary by more are shown. */
const UNEVEN = 1.2;

export function WindowLines({ job, store }: IViewProps): JSX.Element | null {
  const lines = windowLines(store.summary ?? job.numbers);
  return lines.length ? (
    <p className="m s">
      {lines.map(line => (
        <React.Fragment key={line}>
          {line}
          <br />
        </React.Fragment>
      ))}
    </p>
  ) : null;
}

/** In the words of the terminal: `window_lines` of show/tables/job.py. */
export function windowLines(numbers: JobNumbers): string[] {
  const { window, whole, step_spread: spread, lost_steps: lost } = numbers;
  const isWhole = window?.steps === whole?.steps;
  const lines: string[] = [];
  if (spread && spread.high > UNEVEN * spread.low) {
    lines.push(
      trans.__(
        'step time: the median; four of five steps took %1 to %2',
        formats.seconds(spread.low),
        formats.seconds(spread.high)
      )
    );
  }
  if (window) {
    const parts = Object.entries(window.parts_s ?? {})
      .sort(([, one], [, other]) => other - one)
      .map(
        ([part, one]) =>
          `${formats.percent(one / window.seconds)} ${partWord(part)}`
      )
      .join(', ');
    const lasted = formats.duration(window.seconds);
    lines.push(
      isWhole
        ? trans.__('tok/s and MFU: of the whole job, %1: %2', lasted, parts)
        : trans.__('tok/s and MFU: of the last %1: %2', lasted, parts)
    );
  }
  if (whole && !isWhole && typeof whole.tokens_per_s === 'number') {
    lines.push(
      trans.__(
        'whole job so far: %1 over %2',
        `${formats.rate(whole.tokens_per_s)}\u00a0tok/s`,
        formats.duration(whole.seconds)
      )
    );
  }
  if (lost) {
    lines.push(
      trans.__('repeated after a restart: %1 steps', formats.count(lost))
    );
  }
  return lines;
}

function partWord(part: string): string {
  const words: Record<string, string> = {
    steps: trans.__('steps'),
    data: trans.__('waiting for data'),
    'long steps': trans.__('long steps'),
    stall: trans.__('stall'),
    evaluation: trans.__('evaluation'),
    sampling: trans.__('sampling'),
    saving: trans.__('saving'),
    'lost steps': trans.__('lost steps'),
    restarting: trans.__('restarting'),
    other: trans.__('other')
  };
  return words[part] ?? part;
}
