/** Listing of all runs: ended ones as the nodes list them, live ones as the model has them. */

import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import type { IProblem } from '../problem';
import type { JobEntry } from '../schema';
import { type IClusterModel, problemOf } from '../tokens';
import { type IRun, runsOf } from './run';

export class RunListing implements IDisposable {
  constructor(readonly model: IClusterModel) {
    model.changed.connect(this.onModel, this);
    this.onModel();
  }

  readonly changed = new Signal<this, void>(this);
  runs: ReadonlyArray<IRun> = [];
  /** Why the nodes could not be asked. */
  problem: IProblem | null = null;
  /** Whether they have answered once. */
  isRead = false;
  isDisposed = false;

  /** Ask all nodes again. */
  async read(): Promise<void> {
    if (this.isReading) {
      this.isOutdated = true;
      return;
    }
    this.isReading = true;
    do {
      this.isOutdated = false;
      await this.ask();
    } while (this.isOutdated && !this.isDisposed);
    this.isReading = false;
  }

  dispose(): void {
    this.isDisposed = true;
    this.model.changed.disconnect(this.onModel, this);
    Signal.clearData(this);
  }

  private async ask(): Promise<void> {
    try {
      const all = await this.model.api.jobs();
      this.listed = new Map(all.map(job => [job.job_id, job]));
      this.problem = null;
      this.isRead = true;
    } catch (error) {
      this.problem = problemOf(error);
    }
    this.merge();
  }

  private onModel(): void {
    const { jobs, connection } = this.model;
    const isNewlyLive = connection === 'live' && !this.wasLive;
    this.wasLive = connection === 'live';
    const before = this.known;
    if (before !== jobs) {
      this.known = jobs;
      this.merge();
    }
    const ids = new Set(jobs.map(job => job.job_id));
    // What the model has lost may be deleted, or only no longer among the newest.
    const hasLost = before.some(job => !ids.has(job.job_id));
    if (isNewlyLive || (hasLost && this.wasLive)) {
      void this.read();
    }
  }

  private merge(): void {
    const all = new Map(this.listed);
    for (const job of this.known) {
      all.set(job.job_id, job);
    }
    this.runs = runsOf(all.values());
    if (!this.isDisposed) {
      this.changed.emit();
    }
  }

  private listed: ReadonlyMap<string, JobEntry> = new Map();
  private known: ReadonlyArray<JobEntry> = [];
  private wasLive = false;
  private isReading = false;
  private isOutdated = false;
}
