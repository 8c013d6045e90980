/** Live controller: a job's data, live or saved in the notebook, and when to redraw. */

import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import type { JobBundle, JobEntry, ShownSetting } from '../schema';
import { Detail } from '../series/detail';
import { SeriesStore } from '../series/store';
import type { IClusterModel } from '../tokens';

/** Why the view is not live. */
export type Stillness =
  | 'no-server'
  | 'connecting'
  | 'missing'
  | 'forbidden'
  | 'retrying'
  | 'other-cluster'
  | 'not-known';

/** Redraw a little early, so that rows that arrive every second are never late. */
const EARLY = 0.8;

/** Other changes wait this many intervals, to be drawn together with the next rows. */
const PATIENCE = 2;

/** A cell names its job before a node is asked to start it: so long, nobody need know it. */
const BEGINS_S = 30;
const BEGINNING = ['pending', 'starting'];

export class LiveController implements IDisposable {
  constructor(
    readonly jobId: string,
    private model: IClusterModel | null,
    hertz = 1
  ) {
    this.leastMs = (1000 / hertz) * EARLY;
    model?.changed.connect(this.onModel, this);
    this.onModel();
  }

  readonly store = new SeriesStore(() => this.tell());
  /** Single steps of the zoomed range, from the nodes. */
  readonly detail = new Detail(
    (from, to) =>
      this.model && this.isLive
        ? this.model.api.steps(this.jobId, from, to)
        : Promise.reject(new Error('the view is not live')),
    () => this.tell()
  );
  job: JobEntry | null = null;
  cluster: string | null = null;

  readonly changed = new Signal<this, void>(this);
  isDisposed = false;

  get isLive(): boolean {
    return this.stillness === null;
  }

  /** Why the view is not live; `null` if it is. */
  get stillness(): Stillness | null {
    const model = this.model;
    if (!model) {
      return 'no-server';
    }
    if (model.connection !== 'live') {
      return model.connection;
    }
    if (model.job(this.jobId)) {
      return null;
    }
    if (this.isBeginning) {
      return 'connecting';
    }
    return this.cluster !== null && this.cluster !== model.status?.cluster
      ? 'other-cluster'
      : 'not-known';
  }

  /** Whether the job has been named just now, and may be known in a moment. */
  private get isBeginning(): boolean {
    return (
      !this.wasLive &&
      this.job !== null &&
      BEGINNING.includes(this.job.state) &&
      Date.now() / 1000 < (this.savedAt ?? 0) + BEGINS_S
    );
  }

  /** Unix time of the values that a view shows while it is not live. */
  get writtenAt(): number | null {
    return this.wasLive ? (this.model?.lastHeard ?? null) : this.savedAt;
  }

  get watchedCluster(): string | null {
    return this.model?.status?.cluster ?? null;
  }

  /** Every setting of the job, from the server. */
  async settings(): Promise<ReadonlyArray<ShownSetting>> {
    const answer = await this.model?.api.jobSettings(this.jobId);
    return answer?.settings ?? [];
  }

  /** Use the job saved in the notebook, unless the server has newer data. */
  takeBundle(bundle: JobBundle): void {
    this.cluster = bundle.cluster;
    this.savedAt = bundle.saved_s;
    if (!this.isLive || !this.job) {
      this.job = bundle.job;
    }
    if (!this.isLive || this.store.isEmpty) {
      this.store.take({ ...bundle.series, since: 0 });
    }
    this.tell();
  }

  set visible(value: boolean) {
    this.isVisible = value;
    if (value && this.isStale) {
      this.tell();
    }
  }

  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this.isDisposed = true;
    this.watching?.dispose();
    this.detail.dispose();
    window.clearTimeout(this.timer);
    document.removeEventListener('visibilitychange', this.onLook);
    this.model?.changed.disconnect(this.onModel, this);
    Signal.clearData(this);
  }

  private onModel(): void {
    const entry = this.model?.job(this.jobId);
    if (entry) {
      this.wasLive = true;
      const isNews = entry !== this.job;
      const isTurn = entry.state !== this.job?.state;
      this.job = entry;
      if (!this.watching && this.model) {
        this.watching = this.model.watch(this.jobId, this.store);
      }
      if (isNews) {
        this.tell(isTurn ? 1 : PATIENCE);
      }
    }
    const stillness = this.stillness;
    if (stillness !== this.lastStillness) {
      this.lastStillness = stillness;
      this.tell();
    }
  }

  /** Redraw soon, limited to the configured rate, and only while visible. */
  private tell(turns = 1): void {
    this.isStale = true;
    if (this.isDisposed || !this.isVisible) {
      return;
    }
    const due = this.drawnAt + this.leastMs * turns;
    if (this.timer !== 0) {
      if (this.due <= due) {
        return;
      }
      window.clearTimeout(this.timer);
    }
    this.due = due;
    const rest = Math.max(0, due - performance.now());
    this.timer = window.setTimeout(() => this.draw(), rest);
  }

  private draw(): void {
    this.timer = 0;
    if (document.hidden) {
      document.addEventListener('visibilitychange', this.onLook);
    } else if (this.isVisible) {
      this.isStale = false;
      this.drawnAt = performance.now();
      // The model signals changes with a delay.
      this.job = this.model?.job(this.jobId) ?? this.job;
      this.changed.emit();
    }
  }

  private onLook = () => {
    document.removeEventListener('visibilitychange', this.onLook);
    this.tell();
  };

  private savedAt: number | null = null;
  private wasLive = false;
  private watching: IDisposable | null = null;
  private leastMs: number;
  private drawnAt = -Infinity;
  private due = 0;
  private timer = 0;
  private isStale = false;
  private isVisible = true;
  private lastStillness: Stillness | null = 'connecting';
}
