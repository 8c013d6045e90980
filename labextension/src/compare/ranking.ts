/** Which of compared runs is the fastest, by which figure; or why that cannot be told. Pure. */

import * as formats from '../formats';
import type { IRun } from '../runs/run';
import type { Ranking } from '../schema';
import { trans } from '../trans';

/** Figures that differ by no more are not in an order. */
const ALIKE = 0.02;

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
  return trans.__(
    'By %1 %2 is the fastest: %3.',
    figure,
    letter(first.job_id),
    others
      .map(one =>
        trans.__(
          '%1 as fast as %2',
          `${one.times.toFixed(2)}${formats.NBSP}×`,
          letter(one.job_id)
        )
      )
      .join(', ')
  );
}
