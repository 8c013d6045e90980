/** Job bundle: checks a job saved in a notebook before it is drawn; it may come from anywhere. */

import { safe } from '../foreign';
import type { JobBundle } from '../schema';
import { ranksOf } from '../words';

export const JOB_MIME = 'application/vnd.mntrain.job+json';

/** Newest version of a saved job that this page can draw. */
export const BUNDLE_VERSION = 1;

const JOB_ID = /^j-[0-9a-f]{8}$/;
const MOST_RANKS = 4096;
const MOST_ROWS = 100_000;
const MOST_CHARACTERS = 10_000;

export type Checked =
  | { bundle: JobBundle; problem?: undefined }
  | { bundle?: undefined; problem: 'newer' | 'damaged' };

export function checkBundle(data: unknown): Checked {
  const bundle = data as JobBundle | null;
  if (typeof bundle !== 'object' || bundle === null) {
    return { problem: 'damaged' };
  }
  if (typeof bundle.version === 'number' && bundle.version > BUNDLE_VERSION) {
    return { problem: 'newer' };
  }
  const { job, series } = bundle;
  const isWhole =
    typeof job === 'object' &&
    job !== null &&
    JOB_ID.test(job.job_id) &&
    typeof job.state === 'string' &&
    Array.isArray(job.placements) &&
    Array.isArray(job.parts) &&
    job.parts.every(part => Array.isArray(part?.ranks ?? [])) &&
    ranksOf(job).length <= MOST_RANKS &&
    typeof job.numbers === 'object' &&
    typeof series === 'object' &&
    series !== null &&
    series.job_id === job.job_id &&
    [
      series.job ?? {},
      series.evaluation ?? {},
      ...(series.ranks ?? []),
      ...(series.links ?? [])
    ].every(areColumns) &&
    areTexts(series.texts ?? []);
  if (!isWhole) {
    return { problem: 'damaged' };
  }
  // Notebooks hold no training data.
  return { bundle: safe({ ...bundle, series: { ...series, data: null } }) };
}

/** Whether every column is short enough and holds only numbers, text or null. */
function areColumns(table: object): boolean {
  return Object.values(table).every(
    column =>
      !Array.isArray(column) ||
      (column.length <= MOST_ROWS &&
        column.every(
          value =>
            value === null ||
            typeof value === 'number' ||
            typeof value === 'string'
        ))
  );
}

/** Whether the model's texts are few and short enough. */
function areTexts(texts: unknown): boolean {
  const isShort = (text: unknown) =>
    typeof text === 'string' && text.length <= MOST_CHARACTERS;
  return (
    Array.isArray(texts) &&
    texts.length <= MOST_ROWS &&
    texts.every(
      one =>
        typeof one === 'object' &&
        one !== null &&
        Number.isFinite(one.step) &&
        isShort(one.prompt) &&
        isShort(one.text)
    )
  );
}
