/** Headline figures of a job. */

import * as React from 'react';

import * as formats from '../../formats';
import { Measured } from '../../measured';
import { Term, type TermName } from '../../terms';
import type { IViewProps } from '../props';
import { trans } from '../../trans';

type Tile = [
  label: string,
  term: TermName,
  value: formats.Maybe | formats.NonFinite,
  write: (value: any) => string,
  /** Why it is n/a. */
  reason?: string
];

export function Numbers(props: IViewProps): JSX.Element | null {
  if (!props.job.numbers.step) {
    return null;
  }
  return (
    <dl className="mnt-numbers">
      {tiles(props).map(([label, term, value, write, reason]) => (
        <div key={label}>
          <dt className="m s">
            <Term of={term}>{label}</Term>
          </dt>
          <dd>
            <Measured value={value} write={write} reason={reason} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function tiles({ job, store }: IViewProps): Tile[] {
  const numbers = store.summary ?? job.numbers;
  const { missing = {}, busiest_link: share, evaluation_loss } = numbers;
  const { percent, loss } = formats;
  const busiest: [formats.Maybe, typeof formats.bitRate] =
    typeof share === 'number'
      ? [share, percent]
      : [numbers.busiest_bytes_per_s, formats.bitRate];
  return [
    [
      trans.__('tok/s'),
      'throughput',
      numbers.tokens_per_s,
      formats.rate,
      missing.tokens_per_s
    ],
    [trans.__('job MFU'), 'MFU', numbers.mfu, percent, missing.mfu],
    [
      trans.__('step time'),
      'step time',
      numbers.step_s,
      formats.seconds,
      missing.step_s
    ],
    [trans.__('bubble'), 'bubble', numbers.bubble, percent, missing.bubble],
    [
      trans.__('busiest link'),
      'link utilization',
      ...busiest,
      missing.busiest_link
    ],
    [trans.__('loss'), 'loss', numbers.loss, loss, missing.loss],
    ...(formats.isKnown(evaluation_loss)
      ? [[trans.__('evaluation'), 'loss', evaluation_loss, loss] as Tile]
      : [])
  ];
}
