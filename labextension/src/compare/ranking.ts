/** Ranking of compared runs: which is the fastest, or why that is not known. Pure. */

import * as formats from '../formats';
import type { IRun } from '../runs/run';
import type { RankedJob, Ranking } from '../schema';
import { trans } from '../trans';

/** Figures that differ by no more count as equal. */
const ALIKE = 0.02;

/** A range wider than this is shown. */
const SURE = 1.1;

export function rankingWords(
  { figure, jobs = [], refused }: Ranking,
  runs: ReadonlyArray<{ letter: string; run: IRun }>
): string {
  if (refused) {
    return trans.__('Not ranked by %1: %2.', figure, refused);
  }
  const letter = (id: string) =>
    runs.find(({ run }) => run.jobs.some(job => job.job_id === id))?.letter ??
    id;
  const [first, ...others] = jobs;
  if (others.every(one => one.times <= 1 + ALIKE)) {
    return trans.__('By %1 they are alike.', figure);
  }
  if (others.every(one => one.low <= 1)) {
    return trans.__(
      'By %1 they cannot be ranked: their step times vary too much.',
      figure
    );
  }
  return trans.__(
    'By %1 %2 is the fastest: %3.',
    figure,
    letter(first.job_id),
    others
      .map(one =>
        trans.__('%1 as fast as %2', timesText(one), letter(one.job_id))
      )
      .join(', ')
  );
}

function timesText({ times, low, high }: RankedJob): string {
  const told =
    high <= SURE * low
      ? times.toFixed(2)
      : trans.__('%1 to %2', low.toFixed(1), high.toFixed(1));
  return `${told}${formats.NBSP}×`;
}
