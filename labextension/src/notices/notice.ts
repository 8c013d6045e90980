/** Notices: what happened to jobs since the last look, a sentence each. Pure. */

import * as formats from '../formats';
import { causeLine } from '../problem';
import type { JobEntry } from '../schema';
import { trans } from '../trans';
import { OVER } from '../words';

export type NoticeKind = 'succeeded' | 'failed' | 'canceled' | 'stalled';

export interface INotice {
  jobId: string;
  kind: NoticeKind;
  text: string;
  /** Whether it needs somebody's attention. */
  isBad: boolean;
}

/** One sentence for jobs that failed while nobody has closed the notice of the first; newest last. */
export function failuresText(failures: ReadonlyArray<INotice>): string {
  const { length } = failures;
  const newest = failures[length - 1].text;
  return length === 1
    ? newest
    : trans.__('%1 jobs failed. The newest: %2', length, newest);
}

/** State of a job at the last look. */
export interface ISeen {
  state: JobEntry['state'];
  isStalled: boolean;
}

/** What is compared at the next look. */
export function seenOf(job: JobEntry): ISeen {
  return { state: job.state, isStalled: isStalled(job) };
}

/** The news of jobs that were seen before. A job seen for the first time is no news. */
export function noticesOf(
  before: ReadonlyMap<string, ISeen>,
  jobs: ReadonlyArray<JobEntry>
): INotice[] {
  return jobs.flatMap(job => {
    const seen = before.get(job.job_id);
    const notice = seen && noticeOf(seen, job);
    return notice ? [notice] : [];
  });
}

function isStalled(job: JobEntry): boolean {
  return job.hurt === 'stalled';
}

function noticeOf(seen: ISeen, job: JobEntry): INotice | null {
  const { job_id: jobId, name, state, stall } = job;
  if (!OVER.has(seen.state) && OVER.has(state)) {
    const kind = state as 'succeeded' | 'failed' | 'canceled';
    const text = { succeeded, failed, canceled }[kind](job);
    return { jobId, kind, text, isBad: kind === 'failed' };
  }
  if (!seen.isStalled && stall && isStalled(job)) {
    const text = trans.__('%1 has stalled: %2', name, causeLine(stall));
    return { jobId, kind: 'stalled', text, isBad: true };
  }
  return null;
}

function succeeded({ name, numbers }: JobEntry): string {
  return numbers.elapsed_s
    ? trans.__(
        '%1 succeeded after %2',
        name,
        formats.duration(numbers.elapsed_s)
      )
    : trans.__('%1 succeeded', name);
}

function failed({ name, problem }: JobEntry): string {
  return problem
    ? trans.__('%1 failed: %2', name, causeLine(problem))
    : trans.__('%1 failed', name);
}

function canceled({ name, numbers }: JobEntry): string {
  return numbers.step
    ? trans.__(
        '%1 was stopped after step %2',
        name,
        formats.count(numbers.step)
      )
    : trans.__('%1 was stopped', name);
}
