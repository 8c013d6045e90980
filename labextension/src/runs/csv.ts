/** Runs as rows of a CSV file. Pure. */

import type { Row } from '../liveview/export/tables';
import { lossOf } from './loss_line';
import {
  durationOf,
  type IRun,
  nodesText,
  programsOf,
  startedAt,
  stepOf
} from './run';

export const COLUMNS = [
  'run',
  'job_id',
  'name',
  'state',
  'started_s',
  'duration_s',
  'nodes',
  'program',
  'jobs',
  'step',
  'total_steps',
  'tokens_per_s',
  'mfu',
  'loss',
  'submitted_by',
  'note'
] as const;

/** One row per run, as the list shows it; what is not known is empty. */
export function runRow(run: IRun, now: number): Row {
  const { newest, jobs } = run;
  const { total_steps, tokens_per_s, mfu } = newest.numbers;
  const figures = {
    duration_s: durationOf(jobs, now),
    step: stepOf(jobs),
    total_steps,
    tokens_per_s,
    mfu,
    loss: lossOf(newest)
  };
  return {
    run: run.id,
    job_id: newest.job_id,
    name: newest.name,
    state: newest.state,
    started_s: startedAt(newest),
    nodes: nodesText(newest),
    program: programsOf(run)[0],
    jobs: jobs.length,
    submitted_by: newest.submitted_by ?? '',
    note: newest.note ?? '',
    ...Object.fromEntries(
      Object.entries(figures).map(([name, value]) => [name, value ?? ''])
    )
  };
}
