import { Signal } from '@lumino/signaling';

import { LiveController } from '../liveview/controller';
import { bundle, job, JOB_ID, series, written } from './samples';

class FakeModel {
  connection = 'live';
  status = { cluster: 'lab' };
  known = true;
  changed = new Signal<any, void>(this);
  watched = 0;
  job() {
    return this.known ? job({ state: 'running' }) : undefined;
  }
  watch() {
    this.watched += 1;
    return { dispose: () => (this.watched -= 1), isDisposed: false };
  }
}

describe('a live view', () => {
  it('watches a job the server knows, and stops when disposed', () => {
    const model = new FakeModel();
    const controller = new LiveController(JOB_ID, model as any);
    expect(controller.isLive).toBe(true);
    expect(model.watched).toBe(1);
    controller.dispose();
    expect(model.watched).toBe(0);
  });

  it('draws what the notebook holds while the server is silent', () => {
    const model = new FakeModel();
    model.connection = 'missing';
    const controller = new LiveController(JOB_ID, model as any);
    controller.takeBundle(bundle({ job: job({ state: 'succeeded' }) }));
    expect(controller.stillness).toBe('missing');
    expect(controller.job?.state).toBe('succeeded');
    expect(controller.store.isEmpty).toBe(false);
    controller.dispose();
  });

  it('takes the server’s word over the notebook’s', () => {
    const controller = new LiveController(JOB_ID, new FakeModel() as any);
    controller.takeBundle(bundle({ job: job({ state: 'failed' }) }));
    expect(controller.job?.state).toBe('running');
    controller.dispose();
  });

  it.each([
    ['samples', { texts: [written(0)] }],
    ['an evaluation', { evaluation: { time_s: [1], step: [0], loss: [5.5] } }]
  ])('keeps what the server sent of %s before the first step', (_, sent) => {
    const controller = new LiveController(JOB_ID, new FakeModel() as any);
    controller.store.take(series({ ranks: [], job: {}, ...sent }));
    controller.takeBundle(bundle({ series: series({ stream: 'kernel' }) }));
    expect(controller.store.stream).toBe('s-1');
    controller.dispose();
  });

  it('waits for a job that a cell has named just now', () => {
    const model = new FakeModel();
    model.known = false;
    const controller = new LiveController(JOB_ID, model as any);
    const starting = job({ state: 'starting' });
    const now = Date.now() / 1000;
    controller.takeBundle(bundle({ job: starting, saved_s: now }));
    expect(controller.stillness).toBe('connecting');
    controller.takeBundle(bundle({ job: starting, saved_s: now - 60 }));
    expect(controller.stillness).toBe('not-known');
    model.known = true;
    model.changed.emit();
    expect(controller.isLive).toBe(true);
    controller.dispose();
  });

  it('says when another cluster has the job', () => {
    const model = new FakeModel();
    model.known = false;
    const controller = new LiveController(JOB_ID, model as any);
    controller.takeBundle(bundle({ cluster: 'attic' }));
    expect(controller.stillness).toBe('other-cluster');
    controller.takeBundle(bundle());
    expect(controller.stillness).toBe('not-known');
    controller.dispose();
  });
});
