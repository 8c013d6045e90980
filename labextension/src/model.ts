/** Model of the cluster as the Jupyter server sees it; one per page. */

import type { ServerConnection } from '@jupyterlab/services';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import { Api } from './api';
import { EventsConnection } from './connection';
import type {
  JobEntry,
  NodeEntry,
  ServerMessage,
  ServerStatus,
  WaitingLaunch
} from './schema';
import { EMPTY, type IState, reduce } from './state';
import type { Connection, IClusterModel, ISeriesSink } from './tokens';

interface IWatch {
  jobId: string;
  sink: ISeriesSink;
}

const EVENTS_VERSION = 1;

export class ClusterModel implements IClusterModel {
  constructor(settings: ServerConnection.ISettings) {
    this.api = new Api(settings);
    this.events = new EventsConnection(this.api, settings, {
      position: () => ({ stream: this.state.stream, seq: this.state.seq }),
      message: message => this.take(message),
      opened: () => this.watchAll(),
      changed: () => this.tell(),
      staysWhileHidden: () => this.staysWhileHidden
    });
  }

  readonly api: Api;
  readonly changed: Signal<IClusterModel, void> = new Signal(this);
  staysWhileHidden = false;
  status: ServerStatus | null = null;
  nodes: ReadonlyArray<NodeEntry> = [];
  jobs: ReadonlyArray<JobEntry> = [];

  get waiting(): ReadonlyArray<WaitingLaunch> {
    return this.state.waiting;
  }

  start(): void {
    this.events.start();
  }

  get connection(): Connection {
    return this.events.state;
  }

  get lastHeard(): number | null {
    return this.events.lastHeard;
  }

  job(jobId: string): JobEntry | undefined {
    return this.state.jobs.get(jobId);
  }

  watch(jobId: string, sink: ISeriesSink): IDisposable {
    const watch = { jobId, sink };
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
    if (message.kind === 'series') {
      for (const watch of this.watches) {
        if (watch.jobId === message.series.job_id) {
          watch.sink.take(message.series);
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
      this.nodes = [...next.nodes.values()].sort((a, b) =>
        a.name.localeCompare(b.name, undefined, { numeric: true })
      );
    }
    if (next.jobs !== this.state.jobs) {
      this.jobs = [...next.jobs.values()].sort(
        (a, b) => b.submitted_s - a.submitted_s
      );
    }
    if (next.status !== this.status && next.status) {
      this.checkVersion(next.status);
    }
    this.status = next.status;
    this.state = next;
    this.tell();
  }

  private checkVersion({ events_version, version }: ServerStatus): void {
    if (events_version > EVENTS_VERSION && !this.hasWarned) {
      this.hasWarned = true;
      console.warn(
        `mntrain: the server extension (${version}) is newer than this page. Reload the page.`
      );
    }
  }

  private tell(): void {
    if (this.frame === 0) {
      // Not requestAnimationFrame, which does not run in hidden pages: their status must stay current.
      this.frame = window.setTimeout(() => {
        this.frame = 0;
        this.changed.emit();
      }, 16);
    }
  }

  private events: EventsConnection;
  private state: IState = EMPTY;
  private watches = new Set<IWatch>();
  private frame = 0;
  private hasWarned = false;
}
