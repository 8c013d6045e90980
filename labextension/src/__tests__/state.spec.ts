import type { ServerMessage } from '../schema';
import { EMPTY, reduce } from '../state';
import { job, node } from './samples';

const SNAPSHOT: ServerMessage = {
  kind: 'snapshot',
  stream: 's',
  seq: 3,
  status: { version: '1', events_version: 1, cluster: 'lab' },
  nodes: [node('wopr')],
  jobs: [job()]
};

const HEARTBEAT = { kind: 'heartbeat', time_s: 5, interfaces: [] } as any;

describe('the state of the page', () => {
  const state = reduce(EMPTY, SNAPSHOT);

  it('is what a snapshot says, whatever was before', () => {
    const again = reduce(state, { ...SNAPSHOT, seq: 9, nodes: [], jobs: [] });
    expect(again.seq).toBe(9);
    expect(again.nodes.size + again.jobs.size).toBe(0);
  });

  it('counts on with every message', () => {
    let now = state;
    now = reduce(now, { kind: 'node', seq: 4, node: node('muthur') });
    now = reduce(now, { kind: 'job-gone', seq: 5, job_id: job().job_id });
    now = reduce(now, { kind: 'node-gone', seq: 6, key: 'key-of-wopr' });
    expect(now.seq).toBe(6);
    expect([...now.nodes.keys()]).toEqual(['key-of-muthur']);
    expect(now.jobs.size).toBe(0);
  });

  it('keeps a node’s facts when only its heart beats', () => {
    const now = reduce(state, {
      kind: 'heartbeat',
      seq: 4,
      key: 'key-of-wopr',
      liveness: 'suspect',
      last_seen_s: 7,
      heartbeat: HEARTBEAT
    });
    const { view } = now.nodes.get('key-of-wopr')!;
    expect(view.liveness).toBe('suspect');
    expect(view.heartbeat).toBe(HEARTBEAT);
    expect(view.info?.name).toBe('wopr');
  });

  it('counts a heartbeat of a node it does not know', () => {
    const heartbeat = {
      kind: 'heartbeat',
      seq: 4,
      key: 'other',
      liveness: 'up',
      last_seen_s: 7,
      heartbeat: HEARTBEAT
    } as const;
    expect(reduce(state, heartbeat).seq).toBe(4);
  });

  it('ignores what only a newer server knows', () => {
    const news = { kind: 'weather', seq: 4 } as any;
    expect(reduce(state, news)).toBe(state);
  });

  it('never changes the state it was given', () => {
    reduce(state, { kind: 'node-gone', seq: 4, key: 'key-of-wopr' });
    expect(state.nodes.size).toBe(1);
  });
});
