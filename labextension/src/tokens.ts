/** What the extension's parts, and other extensions, share: interfaces and one token. */

import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';

import type {
  Invitation,
  JobEntry,
  JobLog,
  JobSeries,
  LinkMeasurement,
  NodeEntry,
  Problem,
  ServerStatus,
  SpecFile
} from './schema';

/**
 * How the page stands with the Jupyter server's part.
 *
 * `missing`: the server answers, but has no mntrain part. `forbidden`: this user may not.
 * `retrying`: it was there and does not answer now; what is shown is old.
 */
export type Connection =
  'connecting' | 'live' | 'retrying' | 'missing' | 'forbidden';

/** Where new rows of a job's series go, and where they resume after a break. */
export interface ISeriesSink {
  /** The numbering of the last rows taken; `''` before the first. */
  readonly stream: string;
  /** Number of the last row taken; 0 before the first. */
  readonly seq: number;
  /** Rows after `seq`, or all of them where `since` is 0. */
  take(series: JobSeries): void;
}

/** Which lines of a job's log. */
export interface ILogQuery {
  rank?: number;
  node?: string;
  /** At most this many lines, the newest. */
  tail?: number;
  /** Only lines that contain this. */
  search?: string;
}

/** One request each; a refusal rejects with a {@link RequestError}. */
export interface IApi {
  addNode(address: string): Promise<NodeEntry>;
  forgetNode(key: string): Promise<void>;
  /** For so many machines to join with one line. The first one makes the cluster. */
  invite(uses: number): Promise<Invitation>;
  measureLinks(nodes: string[]): Promise<LinkMeasurement[]>;
  /** Run a job again: a new job of the same spec. */
  launchAgain(jobId: string): Promise<JobEntry>;
  /** Launch a job file's text. */
  launchSpec(spec: string): Promise<JobEntry>;
  stop(jobId: string): Promise<JobEntry>;
  save(jobId: string, isLast: boolean): Promise<JobEntry>;
  kill(jobId: string): Promise<JobEntry>;
  log(jobId: string, query: ILogQuery): Promise<JobLog>;
  spec(jobId: string): Promise<SpecFile>;
}

/** A request that was refused or not answered: `message` and `hint` are for people. */
export class RequestError extends Error {
  constructor(
    readonly problem: Problem,
    readonly status: number
  ) {
    super(problem.message);
    this.name = 'RequestError';
  }

  get hint(): string | null {
    return this.problem.hint ?? null;
  }
}

/** The cluster as the Jupyter server sees it, live; one for the whole page. */
export interface IClusterModel {
  readonly api: IApi;
  readonly connection: Connection;
  /** When `retrying`: Unix seconds of the next try, and of the last word from the server. */
  readonly nextTry: number | null;
  readonly lastHeard: number | null;
  readonly status: ServerStatus | null;
  /** Sorted by name. */
  readonly nodes: ReadonlyArray<NodeEntry>;
  /** Newest first. */
  readonly jobs: ReadonlyArray<JobEntry>;
  /** Anything above has changed; at most once per animation frame. */
  readonly changed: ISignal<IClusterModel, void>;

  job(jobId: string): JobEntry | undefined;

  /**
   * Have a job's rows sent to `sink` until disposed; resumed by itself after a break.
   * `onProblem`: the server does not know the job.
   */
  watch(
    jobId: string,
    sink: ISeriesSink,
    onProblem?: (problem: Problem) => void
  ): IDisposable;

  /** Do not wait for the next try. */
  retry(): void;
}

export const IClusterModel = new Token<IClusterModel>(
  'jupyter-mntrain:IClusterModel',
  'The nodes and jobs of the mntrain cluster that the Jupyter server watches.'
);

/** Names of the commands; arguments stand in each command's `describedBy`. */
export namespace CommandIDs {
  /** Show the sidebar. */
  export const show = 'mntrain:show';
  /** Put a cell that launches on all nodes into the notebook, or a new one. */
  export const launch = 'mntrain:launch';
  /** Args: jobId. Open the live view of a job as a tab. */
  export const attach = 'mntrain:attach';
  /** Args: jobId, rank?. Open its log as a tab. */
  export const logs = 'mntrain:logs';
  /** Args: jobId. After a confirmation. */
  export const stop = 'mntrain:stop';
  /** Args: jobId, andStop?. */
  export const save = 'mntrain:save';
  /** Args: jobId. After a confirmation. */
  export const kill = 'mntrain:kill';
  /** Args: jobId. */
  export const launchAgain = 'mntrain:launch-again';
  /** Args: jobId. Its spec as TOML to the clipboard. */
  export const copySpec = 'mntrain:copy-spec';
  /** Args: nodes? | jobId?. */
  export const insertCell = 'mntrain:insert-cell';
  /** Args: address?. */
  export const addNode = 'mntrain:add-node';
  /** Args: uses?. Shows the line that lets machines join. */
  export const inviteNodes = 'mntrain:invite-nodes';
  /** Args: key. */
  export const forgetNode = 'mntrain:forget-node';
  /** Args: nodes?. */
  export const measureLinks = 'mntrain:measure-links';
}
