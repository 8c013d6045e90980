/** Headline figures of a job. */

import * as React from 'react';

import * as formats from '../../formats';
import { Measured } from '../../measured';
import type { IViewProps } from '../props';

interface ITile {
  label: string;
  value: formats.Maybe | formats.NonFinite;
  write: (value: any) => string;
  /** Why it is n/a. */
  reason?: string;
}

export function Numbers(props: IViewProps): JSX.Element | null {
  if (!props.job.numbers.step) {
    return null;
  }
  return (
    <dl className="mnt-numbers">
      {tiles(props).map(({ label, ...measured }) => (
        <div key={label}>
          <dt className="m s">{label}</dt>
          <dd>
            <Measured {...measured} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function tiles({ job, store, trans }: IViewProps): ITile[] {
  const numbers = store.summary ?? job.numbers;
  const { missing = {}, busiest_link: busiest } = numbers;
  const isShare = typeof busiest === 'number';
  const shown: ITile[] = [
    {
      label: trans.__('tok/s'),
      value: numbers.tokens_per_s,
      write: formats.rate,
      reason: missing.tokens_per_s
    },
    {
      label: trans.__('job MFU'),
      value: numbers.mfu,
      write: formats.percent,
      reason: missing.mfu
    },
    {
      label: trans.__('step time'),
      value: numbers.step_s,
      write: formats.seconds,
      reason: missing.step_s
    },
    {
      label: trans.__('bubble'),
      value: numbers.bubble,
      write: formats.percent,
      reason: missing.bubble
    },
    {
      label: trans.__('busiest link'),
      value: isShare ? busiest : numbers.busiest_bytes_per_s,
      write: isShare ? formats.percent : formats.bitRate,
      reason: missing.busiest_link
    },
    {
      label: trans.__('loss'),
      value: numbers.loss,
      write: formats.loss,
      reason: missing.loss
    }
  ];
  if (formats.isKnown(numbers.evaluation_loss)) {
    shown.push({
      label: trans.__('evaluation'),
      value: numbers.evaluation_loss,
      write: formats.loss
    });
  }
  return shown;
}
