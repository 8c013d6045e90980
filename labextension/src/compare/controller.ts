/** Compared runs: their rows, live, and when to redraw. */

import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import type { IProblem } from '../problem';
import { known } from '../runs/actions';
import { type IRun, runsOf } from '../runs/run';
import type { JobComparison, JobEntry } from '../schema';
import { SeriesStore } from '../series/store';
import { type IClusterModel, problemOf } from '../tokens';
import { type IRunSeries, joined } from './run_series';

/** Shortest time between redraws: a comparison need not be as live as a live view. */
const REDRAWN_MS = 1000;

export class Comparison implements IDisposable {
  /** @param jobIds a job of each run. */
  constructor(
    private model: IClusterModel,
    readonly jobIds: ReadonlyArray<string>
  ) {
    model.changed.connect(this.tell, this);
    void this.read();
  }

  readonly changed = new Signal<this, void>(this);
  differences: JobComparison | null = null;
  problem: IProblem | null = null;
  isDisposed = false;

  /** In the order in which they were chosen. */
  get runs(): IRun[] {
    const all = runsOf(
      [...this.jobs].map(([id, job]) => this.model.job(id) ?? job)
    );
    return this.jobIds.flatMap(
      id => all.find(run => run.jobs.some(job => job.job_id === id)) ?? []
    );
  }

  series(run: IRun): IRunSeries {
    const oldestFirst = [...run.jobs].reverse();
    return joined(
      oldestFirst.flatMap(job => this.stores.get(job.job_id) ?? [])
    );
  }

  set visible(value: boolean) {
    this.isVisible = value;
    this.tell();
  }

  dispose(): void {
    this.isDisposed = true;
    window.clearTimeout(this.timer);
    this.watching.forEach(one => one.dispose());
    this.model.changed.disconnect(this.tell, this);
    Signal.clearData(this);
  }

  async read(): Promise<void> {
    const { api } = this.model;
    try {
      const all = runsOf(await api.jobs());
      const wanted = all.filter(run =>
        run.jobs.some(job => this.jobIds.includes(job.job_id))
      );
      await Promise.all(wanted.flatMap(run => run.jobs.map(this.watch)));
      const newest = this.runs.map(run => run.newest.job_id);
      this.problem = null;
      this.differences = await api.compare(newest);
    } catch (error) {
      this.problem = problemOf(error);
    }
    this.tell();
  }

  private watch = async ({ job_id }: JobEntry): Promise<void> => {
    const job = await known(this.model, job_id);
    if (!this.isDisposed && !this.stores.has(job_id)) {
      const store = new SeriesStore(() => this.tell());
      this.jobs.set(job_id, job);
      this.stores.set(job_id, store);
      this.watching.push(this.model.watch(job_id, store));
    }
  };

  private tell(): void {
    if (this.timer === 0 && this.isVisible && !this.isDisposed) {
      this.timer = window.setTimeout(() => {
        this.timer = 0;
        this.changed.emit();
      }, REDRAWN_MS);
    }
  }

  private jobs = new Map<string, JobEntry>();
  private stores = new Map<string, SeriesStore>();
  private watching: IDisposable[] = [];
  private timer = 0;
  private isVisible = true;
}
