/** A run: a chain of jobs that continue one another. Pure. */

import type { JobEntry } from '../schema';
import { trans } from '../trans';
import { canGoOnFrom, endedAt, OVER, ranksOf } from '../words';

/** What runs recipes. */
const TRAINER = 'jupyter_mntrain.train';

export interface IRun {
  id: string;
  /** Newest first; at least one. */
  jobs: ReadonlyArray<JobEntry>;
  /** A run has the name and state of its newest job. */
  newest: JobEntry;
}

/** All runs, the one that started last first. */
export function runsOf(entries: Iterable<JobEntry>): IRun[] {
  const chains = new Map<string, JobEntry[]>();
  for (const entry of entries) {
    const id = entry.run ?? entry.job_id;
    chains.set(id, [...(chains.get(id) ?? []), entry]);
  }
  return [...chains]
    .map(([id, jobs]) => {
      const sorted = jobs.sort((a, b) => b.submitted_s - a.submitted_s);
      return { id, jobs: sorted, newest: sorted[0] };
    })
    .sort((a, b) => b.newest.submitted_s - a.newest.submitted_s);
}

export function isOver(run: IRun): boolean {
  return run.jobs.every(job => OVER.has(job.state));
}

/** Whether it can be resumed, as far as its ranks reported. */
export function isResumable(run: IRun): boolean {
  return isOver(run) && canGoOnFrom(run.newest) !== null;
}

/** Unix time at which a job started, or was submitted if it has not. */
export function startedAt(job: JobEntry): number {
  const starts = job.parts.flatMap(part => part.started_s ?? []);
  return starts.length ? Math.min(...starts) : job.submitted_s;
}

/** Seconds of all these jobs together; a step that was repeated counts twice. */
export function durationOf(
  jobs: ReadonlyArray<JobEntry>,
  now: number
): number | null {
  const each = jobs.map(job => {
    const { elapsed_s } = job.numbers;
    if (typeof elapsed_s === 'number') {
      return elapsed_s; // over all of its attempts, by the job's clock
    }
    const end = OVER.has(job.state) ? endedAt(job) : now;
    return end === null ? null : Math.max(0, end - startedAt(job));
  });
  return each.reduce<number | null>(
    (sum, one) => (sum === null || one === null ? null : sum + one),
    0
  );
}

/** The last step that was finished; a step that was repeated counts once. */
export function stepOf(jobs: ReadonlyArray<JobEntry>): number | null {
  for (const job of jobs) {
    const step = job.numbers.step ?? canGoOnFrom(job);
    if (step !== null) {
      return step;
    }
  }
  return null;
}

/** Nodes and their ranks: `wopr 2, muthur 1`. */
export function nodesText(job: JobEntry): string {
  const places = job.placements.length
    ? job.placements.map(({ node, nproc }) => [node, nproc] as const)
    : job.parts.map(
        ({ node }) =>
          [
            node,
            ranksOf(job).filter(rank => rank.node === node).length
          ] as const
      );
  return places.map(([node, ranks]) => `${node} ${ranks}`).join(', ');
}

/** The nodes of all of its jobs. */
export function nodesOf({ jobs }: IRun): string[] {
  return distinct(
    jobs.flatMap(job =>
      [...job.placements, ...job.parts].map(part => part.node)
    )
  );
}

/** What its jobs run, the newest first: a module, or a script without its arguments. */
export function programsOf({ jobs }: IRun): string[] {
  return distinct(
    jobs.map(({ entry: [first, second] }) => (first === '-m' ? second : first))
  );
}

export function programWord(program: string): string {
  return program === TRAINER ? trans.__('a recipe') : program;
}

function distinct(texts: ReadonlyArray<string>): string[] {
  return [...new Set(texts)];
}
