/** Model of the cluster as the Jupyter server sees it; one per page. */

import type { ServerConnection } from '@jupyterlab/services';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { type ISignal, Signal } from '@lumino/signaling';

import { Api } from './api';
import { EventsConnection } from './connection';
import type { JobEntry, NodeEntry, Problem, ServerStatus } from './schema';
import { EMPTY, type IState, reduce, type ServerMessage } from './state';
import type { Connection, IClusterModel, ISeriesSink } from './tokens';

interface IWatch {
  jobId: string;
  sink: ISeriesSink;
  onProblem?: (problem: Problem) => void;
}

const EVENTS_VERSION = 1;

export class ClusterModel implements IClusterModel, IDisposable {
  constructor(settings: ServerConnection.ISettings) {
    this.api = new Api(settings);
    this.events = new EventsConnection(this.api, settings, {
      position: () => ({ stream: this.state.stream, seq: this.state.seq }),
      message: message => this.take(message),
      opened: () => this.watchAll(),
      changed: () => this.tell()
    });
  }

  readonly api: Api;

  start(): void {
    this.events.start();
  }

  get connection(): Connection {
    return this.events.state;
  }

  get nextTry(): number | null {
    return this.events.nextTry;
  }

  get lastHeard(): number | null {
    return this.events.lastHeard;
  }

  get status(): ServerStatus | null {
    return this.state.status;
  }

  get nodes(): ReadonlyArray<NodeEntry> {
    return this.sortedNodes;
  }

  get jobs(): ReadonlyArray<JobEntry> {
    return this.sortedJobs;
  }

  get changed(): ISignal<IClusterModel, void> {
    return this.changedSignal;
  }

  get isDisposed(): boolean {
    return this.disposed;
  }

  dispose(): void {
    if (!this.disposed) {
      this.disposed = true;
      this.events.dispose();
      Signal.clearData(this);
    }
  }

  job(jobId: string): JobEntry | undefined {
    return this.state.jobs.get(jobId);
  }

  watch(
    jobId: string,
    sink: ISeriesSink,
    onProblem?: (problem: Problem) => void
  ): IDisposable {
    const watch = { jobId, sink, onProblem };
    this.watches.add(watch);
    this.sendWatch(jobId);
    return new DisposableDelegate(() => {
      this.watches.delete(watch);
      if (![...this.watches].some(other => other.jobId === jobId)) {
        this.events.send({ kind: 'unwatch', job_id: jobId });
      }
    });
  }

  retry(): void {
    this.events.retry();
  }

  private watchAll(): void {
    new Set([...this.watches].map(watch => watch.jobId)).forEach(jobId =>
      this.sendWatch(jobId)
    );
  }

  /** Views of a job share one stream of rows; if their positions differ, all restart from 0. */
  private sendWatch(jobId: string): void {
    const sinks = [...this.watches]
      .filter(watch => watch.jobId === jobId)
      .map(watch => watch.sink);
    const [first] = sinks;
    const agree = sinks.every(
      sink => sink.stream === first.stream && sink.seq === first.seq
    );
    this.events.send({
      kind: 'watch',
      job_id: jobId,
      stream: agree ? first.stream : '',
      since: agree ? first.seq : 0
    });
  }

  private take(message: ServerMessage): void {
    switch (message.kind) {
      case 'series':
        for (const watch of this.watches) {
          if (watch.jobId === message.series.job_id) {
            watch.sink.take(message.series);
          }
        }
        return;
      case 'problem':
        for (const watch of this.watches) {
          if (watch.jobId === message.job_id) {
            watch.onProblem?.(message.problem);
          }
        }
        return;
    }
    const next = reduce(this.state, message);
    if (next !== this.state) {
      this.setState(next);
    }
  }

  private setState(next: IState): void {
    if (next.nodes !== this.state.nodes) {
      this.sortedNodes = [...next.nodes.values()].sort((a, b) =>
        a.name.localeCompare(b.name, undefined, { numeric: true })
      );
    }
    if (next.jobs !== this.state.jobs) {
      this.sortedJobs = [...next.jobs.values()].sort(
        (a, b) => b.submitted_s - a.submitted_s
      );
    }
    if (next.status !== this.state.status && next.status) {
      this.checkVersion(next.status);
    }
    this.state = next;
    this.tell();
  }

  private checkVersion(status: ServerStatus): void {
    if (status.events_version > EVENTS_VERSION && !this.hasWarned) {
      this.hasWarned = true;
      console.warn(
        `mntrain: the server extension (${status.version}) is newer than this page. Reload the page.`
      );
    }
  }

  private tell(): void {
    if (this.frame === 0 && !this.disposed) {
      // Not requestAnimationFrame, which does not run in hidden pages: their status must stay current.
      this.frame = window.setTimeout(() => {
        this.frame = 0;
        this.changedSignal.emit();
      }, 16);
    }
  }

  private events: EventsConnection;
  private state: IState = EMPTY;
  private sortedNodes: NodeEntry[] = [];
  private sortedJobs: JobEntry[] = [];
  private watches = new Set<IWatch>();
  private changedSignal = new Signal<IClusterModel, void>(this);
  private frame = 0;
  private hasWarned = false;
  private disposed = false;
}
