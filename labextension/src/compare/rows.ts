/** Rows of compared runs, for a CSV file. Pure. */

import type { Cell, Row } from '../liveview/export/tables';
import type { IRun } from '../runs/run';
import type { IRunSeries, RunColumn } from './run_series';

const FIGURES: ReadonlyArray<RunColumn> = [
  'step',
  'tokens',
  'elapsed',
  'time_s',
  'loss',
  'tokens_per_s'
];

export const COLUMNS = ['run', 'name', ...FIGURES];

export function rowsOf(run: IRun, { columns }: IRunSeries): Row[] {
  return Array.from(columns.step, (_, at) => ({
    run: run.id,
    name: run.newest.name,
    ...Object.fromEntries(
      FIGURES.flatMap(name => {
        const value = columns[name][at];
        return Number.isNaN(value) ? [] : [[name, value as Cell]];
      })
    )
  }));
}
