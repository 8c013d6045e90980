/** State of the page, and how each message changes it. Pure. */

import type {
  JobEntry,
  NodeEntry,
  ServerStatus,
  Snapshot,
  StreamResumed,
  NodeSet,
  NodeBeat,
  NodeGone,
  JobSet,
  JobGone,
  StatusSet,
  SeriesSent,
  Refused
} from './schema';

export type ServerMessage =
  | Snapshot
  | StreamResumed
  | NodeSet
  | NodeBeat
  | NodeGone
  | JobSet
  | JobGone
  | StatusSet
  | SeriesSent
  | Refused;

export interface IState {
  /** The stream of numbered messages; `''` before the first snapshot. */
  readonly stream: string;
  readonly seq: number;
  readonly status: ServerStatus | null;
  readonly nodes: ReadonlyMap<string, NodeEntry>;
  readonly jobs: ReadonlyMap<string, JobEntry>;
}

export const EMPTY: IState = {
  stream: '',
  seq: 0,
  status: null,
  nodes: new Map(),
  jobs: new Map()
};

/** The state after a message. Unknown kinds, from a newer server, are ignored. */
export function reduce(state: IState, message: ServerMessage): IState {
  switch (message.kind) {
    case 'snapshot':
      return {
        stream: message.stream,
        seq: message.seq,
        status: message.status,
        nodes: new Map(message.nodes.map(node => [node.key, node])),
        jobs: new Map(message.jobs.map(job => [job.job_id, job]))
      };
    case 'status':
      return { ...state, seq: message.seq, status: message.status };
    case 'node':
      return {
        ...state,
        seq: message.seq,
        nodes: new Map(state.nodes).set(message.node.key, message.node)
      };
    case 'beat': {
      const node = state.nodes.get(message.key);
      if (!node) {
        return { ...state, seq: message.seq };
      }
      const view = {
        ...node.view,
        liveness: message.liveness,
        last_seen_s: message.last_seen_s,
        beat: message.beat
      };
      const nodes = new Map(state.nodes).set(message.key, { ...node, view });
      return { ...state, seq: message.seq, nodes };
    }
    case 'node-gone': {
      const nodes = new Map(state.nodes);
      nodes.delete(message.key);
      return { ...state, seq: message.seq, nodes };
    }
    case 'job':
      return {
        ...state,
        seq: message.seq,
        jobs: new Map(state.jobs).set(message.job.job_id, message.job)
      };
    case 'job-gone': {
      const jobs = new Map(state.jobs);
      jobs.delete(message.job_id);
      return { ...state, seq: message.seq, jobs };
    }
    default:
      return state;
  }
}
