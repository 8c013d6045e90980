/** Interfaces, command ids and the token that other extensions may use. */

import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';

import type { Api } from './api';
import type { IProblem } from './problem';
import type {
  JobEntry,
  JobSeries,
  NodeEntry,
  ServerStatus,
  WaitingLaunch
} from './schema';

/**
 * Connection to the Jupyter server extension.
 *
 * `missing`: the server lacks our extension. `forbidden`: this user lacks permission.
 * `retrying`: the connection was lost; the values shown are the last received.
 */
export type Connection =
  'connecting' | 'live' | 'retrying' | 'missing' | 'forbidden';

/** Receives a job's rows, and knows where to resume. */
export interface ISeriesSink {
  /** The stream of the last rows; `''` before the first. */
  readonly stream: string;
  /** Number of the last row; 0 before the first. */
  readonly seq: number;
  /** Rows after `seq`, or all of them where `since` is 0. */
  take(series: JobSeries): void;
}

/** A request that failed or got no response. */
export class RequestError extends Error {
  constructor(
    readonly problem: IProblem,
    readonly status: number
  ) {
    super(problem.cause);
    this.name = 'RequestError';
  }
}

/** The problem of a thrown error. */
export function problemOf(error: unknown): IProblem {
  return error instanceof RequestError
    ? error.problem
    : { cause: String((error as Error).message ?? error) };
}

/** The cluster as the Jupyter server sees it, live; one per page. */
export interface IClusterModel {
  readonly api: Api;
  readonly connection: Connection;
  /** Whether to stay connected, for notices, while the page is hidden for minutes. */
  staysWhileHidden: boolean;
  /** Unix time of the last message from the server. */
  readonly lastHeard: number | null;
  readonly status: ServerStatus | null;
  /** Sorted by name. */
  readonly nodes: ReadonlyArray<NodeEntry>;
  /** Newest first. */
  readonly jobs: ReadonlyArray<JobEntry>;
  /** Launches that wait for nodes, newest first. */
  readonly waiting: ReadonlyArray<WaitingLaunch>;
  /** Anything above has changed; at most once per animation frame. */
  readonly changed: ISignal<IClusterModel, void>;

  job(jobId: string): JobEntry | undefined;

  /** Send a job's rows to `sink` until disposed; resumed automatically after a break. */
  watch(jobId: string, sink: ISeriesSink): IDisposable;

  /** Connect now instead of at the next attempt. */
  retry(): void;
}

export const IClusterModel = new Token<IClusterModel>(
  'jupyter-mntrain:IClusterModel',
  'The nodes and jobs of the mntrain cluster that the Jupyter server watches.'
);

/** Command ids; their arguments are in each command's `describedBy`. */
export namespace CommandIDs {
  /** Show the sidebar. */
  export const show = 'mntrain:show';
  /** Open the list of all runs as a tab. */
  export const runs = 'mntrain:runs';
  /** Args: jobIds. Compare two to four runs, each named by one of its jobs, in a tab. */
  export const compare = 'mntrain:compare';
  /** Open the submit panel in the notebook, or in a new one. */
  export const launch = 'mntrain:launch';
  /** Args: path. Open the submit panel for a recipe or a script. */
  export const openPanel = 'mntrain:open-panel';
  /** Args: jobId. Open the live view of a job as a tab. */
  export const attach = 'mntrain:attach';
  /** Args: jobId, rank?. Open its log as a tab. */
  export const logs = 'mntrain:logs';
  /** Args: jobId. What it wrote on its nodes, as a tab. */
  export const files = 'mntrain:files';
  /** Args: jobId, rank?. Where its ranks are now, as a tab. */
  export const stacks = 'mntrain:stacks';
  /** Args: jobId. After a confirmation. */
  export const stop = 'mntrain:stop';
  /** Args: jobId, andStop?. */
  export const save = 'mntrain:save';
  /** Args: cluster. Give back the nodes that a launch waits for, after a confirmation. */
  export const cancelLaunch = 'mntrain:cancel-launch';
  /** Args: jobId. After a confirmation. */
  export const kill = 'mntrain:kill';
  /** Args: jobId. Start over: a new run of the same settings, after a confirmation. */
  export const launchAgain = 'mntrain:launch-again';
  /** Args: jobId, expectedStep? | begin? | more?. Without them it asks. */
  export const resume = 'mntrain:resume';
  /** Args: jobId. What its run has saved. */
  export const checkpoints = 'mntrain:checkpoints';
  /** Args: jobId, step, action: pin, unpin or delete. The last asks first. */
  export const changeCheckpoint = 'mntrain:change-checkpoint';
  /** Args: jobId. Its spec as TOML to the clipboard. */
  export const copySpec = 'mntrain:copy-spec';
  /** Args: nodes? | jobId?. */
  export const insertCell = 'mntrain:insert-cell';
  /** Args: address?. */
  export const addNode = 'mntrain:add-node';
  /** Args: uses?. Shows the command with which machines join. */
  export const inviteNodes = 'mntrain:invite-nodes';
  /** Make the Jupyter server's own machine a node of the cluster. */
  export const makeNode = 'mntrain:make-node';
  /** Have the server's own machine join the cluster of a pasted token. */
  export const joinCluster = 'mntrain:join-cluster';
  /** Have the server's own machine start its agent as a service. */
  export const installService = 'mntrain:install-service';
  /** Args: key. */
  export const forgetNode = 'mntrain:forget-node';
  export const forgetSilent = 'mntrain:forget-silent-nodes';
  /** Args: key?. What a node did, as a tab. */
  export const nodeHistory = 'mntrain:node-history';
  /** Args: nodes?. What keeps them from training, as a tab. */
  export const doctor = 'mntrain:doctor';
  /** Args: nodes?. How fast collectives are, as a tab. */
  export const bench = 'mntrain:bench';
  /** Args: nodes?. */
  export const measureLinks = 'mntrain:measure-links';
}
