/** Requests to the Jupyter server extension. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { IProblem } from './problem';
import type {
  Invitation,
  JobLog,
  NodeEntry,
  Problem,
  ServerStatus
} from './schema';
import { type IApi, type ILogQuery, RequestError } from './tokens';

const PREFIX = 'mntrain/v1';

export class Api implements IApi {
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

  invite(uses: number): Promise<Invitation> {
    return this.request('POST', 'invitations', { uses });
  }

  measureLinks(nodes: string[]): ReturnType<IApi['measureLinks']> {
    return this.request('POST', 'links/measure', { nodes });
  }

  launchAgain(jobId: string): ReturnType<IApi['launchAgain']> {
    return this.request('POST', 'jobs', { job_id: jobId });
  }

  launchSpec(spec: string): ReturnType<IApi['launchSpec']> {
    return this.request('POST', 'jobs', { spec });
  }

  stop(jobId: string): ReturnType<IApi['stop']> {
    return this.request('POST', `jobs/${encodeURIComponent(jobId)}/stop`, {});
  }

  save(jobId: string, isLast: boolean): ReturnType<IApi['save']> {
    const path = `jobs/${encodeURIComponent(jobId)}/save`;
    return this.request('POST', path, { is_last: isLast });
  }

  kill(jobId: string): ReturnType<IApi['kill']> {
    return this.request('POST', `jobs/${encodeURIComponent(jobId)}/kill`, {});
  }

  log(jobId: string, query: ILogQuery): Promise<JobLog> {
    const given = Object.entries(query).filter(
      ([, value]) => value !== undefined && value !== ''
    );
    const text = URLExt.objectToQueryString(
      Object.fromEntries(given.map(([name, value]) => [name, String(value)]))
    );
    return this.request('GET', `jobs/${encodeURIComponent(jobId)}/logs${text}`);
  }

  spec(jobId: string): ReturnType<IApi['spec']> {
    return this.request('GET', `jobs/${encodeURIComponent(jobId)}/spec`);
  }

  /** The WebSocket's URL, with the token where the page has no cookie. */
  eventsUrl(stream: string, since: number): string {
    const query: Record<string, string> = { stream, since: String(since) };
    if (this.settings.appendToken && this.settings.token) {
      query.token = this.settings.token;
    }
    return (
      URLExt.join(this.settings.wsUrl, PREFIX, 'events') +
      URLExt.objectToQueryString(query)
    );
  }

  private async request<T>(
    method: string,
    path: string,
    body?: unknown
  ): Promise<T> {
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(
        URLExt.join(this.settings.baseUrl, PREFIX, path),
        { method, body: body === undefined ? undefined : JSON.stringify(body) },
        this.settings
      );
    } catch (error) {
      throw new RequestError(
        { cause: 'the Jupyter server is not responding' },
        0
      );
    }
    const text = await response.text();
    const data = parse(text);
    if (!response.ok) {
      throw new RequestError(asProblem(data, response), response.status);
    }
    return data as T;
  }
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
