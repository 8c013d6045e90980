/** The step time that a plan predicted, how far off it is, and why. */

import * as React from 'react';

import * as formats from '../../formats';
import type { JobNumbers, OffPlan, OffPlanCause } from '../../schema';
import { trans } from '../../trans';
import type { IViewProps } from '../props';

const MOST_CAUSES = 3;

/** From twice as long on, a difference is shown as a factor. */
const FACTOR_FROM = 2;

export function Predicted(props: IViewProps): JSX.Element | null {
  const { store, job } = props;
  const numbers: JobNumbers = store.summary ?? job.numbers;
  const stepS = numbers.predicted_step_s;
  return numbers.step && typeof stepS === 'number' ? (
    <p className="m s">
      {predictedWords(stepS, store.summary?.off_plan ?? null)}
    </p>
  ) : null;
}

export function predictedWords(stepS: number, off: OffPlan | null): string {
  const step = formats.seconds(stepS);
  return off
    ? trans.__(
        'predicted: %1 per step; it is %2: %3',
        step,
        against(off.ratio),
        why(off)
      )
    : trans.__('predicted: %1 per step', step);
}

function why({ ratio, causes = [] }: OffPlan): string {
  if (!causes.length) {
    return ratio > 1
      ? trans.__('ranks wait longer')
      : trans.__('ranks wait less');
  }
  const more = causes.length - MOST_CAUSES;
  return [
    ...causes.slice(0, MOST_CAUSES).map(words),
    ...(more > 0 ? [trans.__('and %1 more', more)] : [])
  ].join('; ');
}

function words(cause: OffPlanCause): string {
  if (cause.kind === 'traffic') {
    return trans.__(
      'others use %1 of the link of %2',
      formats.percent(cause.ratio, 0),
      cause.node ?? ''
    );
  }
  const said =
    cause.kind === 'computing'
      ? trans.__(
          'rank %1 computes %2 than planned',
          cause.rank,
          against(cause.ratio)
        )
      : trans.__(
          'messages from rank %1 to rank %2 take %3, planned %4',
          cause.rank,
          cause.peer,
          formats.latency(cause.took_s),
          formats.latency(cause.planned_s)
        );
  return cause.is_guessed ? trans.__('%1 (its speed was guessed)', said) : said;
}

function against(ratio: number): string {
  const factor = ratio >= 1 ? ratio : 1 / ratio;
  const much =
    factor >= FACTOR_FROM
      ? `${factor.toFixed(1)}\u00a0×`
      : formats.percent(factor - 1, 0);
  return ratio >= 1 ? trans.__('%1 slower', much) : trans.__('%1 faster', much);
}
