/** State of the page, and how each message changes it. Pure. */

import type {
  JobEntry,
  NodeEntry,
  ServerMessage,
  ServerStatus,
  WaitingLaunch
} from './schema';

export interface IState {
  /** The stream of numbered messages; `''` before the first snapshot. */
  readonly stream: string;
  readonly seq: number;
  readonly status: ServerStatus | null;
  readonly nodes: ReadonlyMap<string, NodeEntry>;
  readonly jobs: ReadonlyMap<string, JobEntry>;
  readonly waiting: ReadonlyArray<WaitingLaunch>;
}

export const EMPTY: IState = {
  stream: '',
  seq: 0,
  status: null,
  nodes: new Map(),
  jobs: new Map(),
  waiting: []
};

/** The state after a message. Unknown kinds, from a newer server, are ignored. */
export function reduce(state: IState, message: ServerMessage): IState {
  const nodes = new Map(state.nodes);
  const jobs = new Map(state.jobs);
  switch (message.kind) {
    case 'snapshot':
      return {
        stream: message.stream,
        seq: message.seq,
        status: message.status,
        nodes: new Map(message.nodes.map(node => [node.key, node])),
        jobs: new Map(message.jobs.map(job => [job.job_id, job])),
        waiting: message.waiting ?? []
      };
    case 'status':
      return { ...state, seq: message.seq, status: message.status };
    case 'node':
      nodes.set(message.node.key, message.node);
      return { ...state, seq: message.seq, nodes };
    case 'heartbeat': {
      const { seq, key, liveness, last_seen_s, heartbeat } = message;
      const node = nodes.get(key);
      if (node) {
        const view = { ...node.view, liveness, last_seen_s, heartbeat };
        nodes.set(key, { ...node, view });
      }
      return { ...state, seq, nodes };
    }
    case 'node-gone':
      nodes.delete(message.key);
      return { ...state, seq: message.seq, nodes };
    case 'job':
      jobs.set(message.job.job_id, message.job);
      return { ...state, seq: message.seq, jobs };
    case 'job-gone':
      jobs.delete(message.job_id);
      return { ...state, seq: message.seq, jobs };
    case 'waiting':
      return { ...state, seq: message.seq, waiting: message.waiting };
    default:
      return state;
  }
}
