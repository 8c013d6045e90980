/** Requests to the Jupyter server extension. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { serverClock } from './clock';
import type { IProblem } from './problem';
import type {
  BenchState,
  ChangedMachine,
  Invitation,
  JobComparison,
  JobEntry,
  JobLog,
  JobRemoval,
  JobSeries,
  CheckpointChange,
  DoctorAnswer,
  JobSettings,
  JobTrace,
  LabelJob,
  LaunchedJob,
  LinkMeasurement,
  NodeEntry,
  NodeHistory,
  PackedWheel,
  SavedOutput,
  Problem,
  Remedy,
  ResumeJob,
  ResumeOffer,
  ServerStatus,
  ShownStacks,
  SpecFile,
  WorkState,
  WrittenFiles
} from './schema';
import { RequestError } from './tokens';

const PREFIX = 'mntrain/v1';

/** Which lines of a job's log: of one rank, the newest `tail`, only those that contain `search`. */
export interface ILogQuery {
  rank?: number;
  tail?: number;
  search?: string;
}

/** A file that a job wrote on a node; `most` bytes of its beginning. */
export interface IFileQuery {
  path: string;
  node: string;
  most?: number;
}

/** What a person acknowledges of one launch. */
export type Anyway = Pick<ResumeJob, 'mixed_versions' | 'skips_doctor'>;

/** REST requests; errors reject with a {@link RequestError}. */
export class Api {
  constructor(readonly settings: ServerConnection.ISettings) {}

  status(): Promise<ServerStatus> {
    return this.request('GET', 'status');
  }

  addNode(address: string): Promise<NodeEntry> {
    return this.request('POST', 'nodes', { address });
  }

  forgetNode(key: string): Promise<void> {
    return this.request('DELETE', `nodes/${encodeURIComponent(key)}`);
  }

  /** What a node did in its last seconds, with and without jobs. */
  nodeHistory(key: string, last: number, points: number): Promise<NodeHistory> {
    const query = URLExt.objectToQueryString({ last, points });
    const path = `nodes/${encodeURIComponent(key)}/history`;
    return this.request('GET', path + query);
  }

  /** Invite `uses` machines with one command. The first invitation creates the cluster. */
  invite(uses: number): Promise<Invitation> {
    return this.request('POST', 'invitations', { uses });
  }

  /** Make the server's own machine a node of its cluster; the agent outlives the server. */
  makeNode(): Promise<ChangedMachine> {
    return this.request('POST', 'own-machine/node', {});
  }

  /** Have the server's own machine join the cluster of a token, as node or driver. */
  joinCluster(token: string): Promise<ChangedMachine> {
    return this.request('POST', 'own-machine/membership', { token });
  }

  installService(): Promise<ChangedMachine> {
    return this.request('POST', 'own-machine/service', {});
  }

  /** Pack the server's package for kernels of other environments. */
  packWheel(): Promise<PackedWheel> {
    return this.request('POST', 'own-machine/wheel', {});
  }

  measureLinks(nodes: string[]): Promise<LinkMeasurement[]> {
    return this.request('POST', 'links/measure', { nodes });
  }

  /** Start a collective benchmark, or return the progress of the one that runs. */
  beginBench(nodes: ReadonlyArray<string>): Promise<BenchState> {
    return this.request('POST', 'bench', { nodes });
  }

  /** Cancel the running benchmark, and delete its job. */
  cancelBench(): Promise<BenchState> {
    return this.request('DELETE', 'bench');
  }

  /** Progress of a benchmark, or the newest result. */
  benchState(): Promise<BenchState> {
    return this.request('GET', 'bench');
  }

  /** Find what keeps nodes from training; all nodes if none is named. */
  examine(
    nodes: ReadonlyArray<string>,
    job: string | null = null
  ): Promise<DoctorAnswer> {
    return this.request('POST', 'doctor', { nodes, job });
  }

  /** Start the fix of a finding, or return its progress. */
  mend(remedy: Remedy): Promise<WorkState> {
    return this.request('POST', 'doctor/remedy', remedy);
  }

  /** Start to try a job's first step, or return the progress. */
  tryFirstStep(job: string): Promise<WorkState> {
    return this.request('POST', 'doctor/deep', { job });
  }

  /** All jobs, however old, as the nodes list them. */
  jobs(): Promise<JobEntry[]> {
    return this.request('GET', 'jobs?all=1');
  }

  /** Return a job, however old; from now on, the server sends its changes. */
  job(jobId: string): Promise<JobEntry> {
    return this.request('GET', `jobs/${encodeURIComponent(jobId)}`);
  }

  /** Give a job another name or note; empty = none of its own. */
  label(jobId: string, label: LabelJob): Promise<JobEntry> {
    return this.request('PUT', jobPath(jobId, 'label'), label);
  }

  /** Return what deleting an ended job would remove. */
  planRemoval(jobId: string): Promise<JobRemoval> {
    return this.request('GET', jobPath(jobId, 'removal'));
  }

  /** Delete an ended job; also the checkpoints of its run, if it is the last one of it. */
  remove(jobId: string, withCheckpoints: boolean): Promise<JobRemoval> {
    const query = `removal?checkpoints=${withCheckpoints ? 1 : 0}`;
    return this.request('DELETE', jobPath(jobId, query));
  }

  /** Run a job again: a new job of the same spec. */
  launchAgain(jobId: string, anyway: Anyway = {}): Promise<LaunchedJob> {
    return this.request('POST', 'jobs', { job_id: jobId, ...anyway });
  }

  /** Give back the nodes that a launch waits for. */
  cancelLaunch(cluster: string): Promise<void> {
    return this.request('DELETE', `launches/${encodeURIComponent(cluster)}`);
  }

  stop(jobId: string): Promise<JobEntry> {
    return this.request('POST', jobPath(jobId, 'stop'), {});
  }

  save(jobId: string, isLast: boolean): Promise<JobEntry> {
    return this.request('POST', jobPath(jobId, 'save'), { is_last: isLast });
  }

  kill(jobId: string): Promise<JobEntry> {
    return this.request('POST', jobPath(jobId, 'kill'), {});
  }

  /** What an ended job can go on from, or what is in the way. */
  resumeOffer(jobId: string): Promise<ResumeOffer> {
    return this.request('GET', jobPath(jobId, 'resume'));
  }

  resume(jobId: string, asked: ResumeJob): Promise<LaunchedJob> {
    return this.request('POST', jobPath(jobId, 'resume'), asked);
  }

  changeCheckpoint(
    jobId: string,
    change: CheckpointChange
  ): Promise<ResumeOffer> {
    return this.request('POST', jobPath(jobId, 'checkpoints'), change);
  }

  log(jobId: string, query: ILogQuery): Promise<JobLog> {
    const given = Object.entries(query)
      .filter(([, value]) => value !== undefined && value !== '')
      .map(([name, value]) => [name, String(value)]);
    const text = URLExt.objectToQueryString(Object.fromEntries(given));
    return this.request('GET', jobPath(jobId, 'logs') + text);
  }

  /** URL of a job's whole log, or one rank's, as a file. */
  logFileUrl(jobId: string, rank?: number): string {
    const query = {
      ...(rank === undefined ? {} : { rank: String(rank) }),
      ...this.token()
    };
    return (
      URLExt.join(this.settings.baseUrl, PREFIX, jobPath(jobId, 'log-file')) +
      URLExt.objectToQueryString(query)
    );
  }

  /** What a job wrote on its nodes. */
  files(jobId: string): Promise<WrittenFiles> {
    return this.request('GET', jobPath(jobId, 'files'));
  }

  /** The content of a file that a job wrote. */
  async file(jobId: string, query: IFileQuery): Promise<ArrayBuffer> {
    const path = jobPath(jobId, 'file') + fileQuery(query);
    return (await this.answer('GET', path)).arrayBuffer();
  }

  /** URL of such a file. */
  fileUrl(jobId: string, query: IFileQuery): string {
    return (
      URLExt.join(this.settings.baseUrl, PREFIX, jobPath(jobId, 'file')) +
      fileQuery(query, this.token())
    );
  }

  /** A range of steps, both ends included, as finely as the nodes have it. */
  steps(jobId: string, from: number, to: number): Promise<JobSeries> {
    const query = { begin: String(from), end: String(to), points: '1200' };
    const path = jobPath(jobId, 'metrics');
    return this.request('GET', path + URLExt.objectToQueryString(query));
  }

  /** What a notebook keeps of a job: data, picture and text of one moment. */
  output(jobId: string): Promise<SavedOutput> {
    return this.request('GET', jobPath(jobId, 'output'));
  }

  /** Request the stacks of all ranks, or one; takes up to two seconds. */
  stacks(jobId: string, rank?: number): Promise<ShownStacks> {
    return this.request('POST', jobPath(jobId, 'stacks'), { rank });
  }

  spec(jobId: string): Promise<SpecFile> {
    return this.request('GET', jobPath(jobId, 'spec'));
  }

  /** Every setting of a job, and where it was set. */
  jobSettings(jobId: string): Promise<JobSettings> {
    return this.request('GET', jobPath(jobId, 'settings'));
  }

  /** Its newest recorded step, and the predicted one. */
  trace(jobId: string): Promise<JobTrace> {
    return this.request('GET', jobPath(jobId, 'trace'));
  }

  /** What differs between the settings of these jobs. */
  compare(jobIds: ReadonlyArray<string>): Promise<JobComparison> {
    const query = jobIds.map(id => `job=${encodeURIComponent(id)}`).join('&');
    return this.request('GET', `compare?${query}`);
  }

  /** The WebSocket's URL, with the token where the page has no cookie. */
  eventsUrl(stream: string, since: number): string {
    const query = { stream, since: String(since), ...this.token() };
    return (
      URLExt.join(this.settings.wsUrl, PREFIX, 'events') +
      URLExt.objectToQueryString(query)
    );
  }

  /** For requests that the browser makes by itself. */
  private token(): { token?: string } {
    const { appendToken, token } = this.settings;
    return appendToken && token ? { token } : {};
  }

  private async request<T>(
    method: string,
    path: string,
    body?: unknown
  ): Promise<T> {
    const response = await this.answer(method, path, body);
    return parse(await response.text()) as T;
  }

  private async answer(
    method: string,
    path: string,
    body?: unknown
  ): Promise<Response> {
    const sentMs = Date.now();
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(
        URLExt.join(this.settings.baseUrl, PREFIX, path),
        { method, body: body === undefined ? undefined : JSON.stringify(body) },
        this.settings
      );
    } catch {
      throw new RequestError(
        { cause: 'the Jupyter server is not responding' },
        0
      );
    }
    if (!response.ok) {
      const data = parse(await response.text());
      throw new RequestError(asProblem(data, response), response.status);
    }
    serverClock.hear(response.headers.get('Date'), sentMs);
    return response;
  }
}

function fileQuery(
  { path, node, most }: IFileQuery,
  token: { token?: string } = {}
): string {
  const part = most === undefined ? {} : { most: String(most) };
  return URLExt.objectToQueryString({ path, node, ...part, ...token });
}

function jobPath(jobId: string, what: string): string {
  return `jobs/${encodeURIComponent(jobId)}/${what}`;
}

function parse(text: string): unknown {
  try {
    return text ? JSON.parse(text) : undefined;
  } catch {
    return undefined;
  }
}

/** The problem in an error response; for responses that are not ours, the HTTP status. */
function asProblem(data: unknown, response: Response): IProblem {
  const given = data as Partial<Problem> | undefined;
  return typeof given?.cause === 'string'
    ? { ...given, cause: given.cause }
    : { cause: `${response.status} ${response.statusText}` };
}
