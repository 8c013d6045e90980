import { Signal } from '@lumino/signaling';

import { JOB_MIME } from '../liveview/bundle';
import type { JobBundle, JobEntry, SavedOutput } from '../schema';
import { SavedOutputs } from '../saved/outputs';
import { bundle, job, JOB_ID } from './samples';

const PNG = 'iVBORw0KGgo=';

class Outputs {
  constructor(readonly list: any[]) {}
  writes = 0;
  get length() {
    return this.list.length;
  }
  get(index: number) {
    const output = this.list[index];
    return { data: output.data, toJSON: () => output };
  }
  set(index: number, output: any) {
    this.writes += 1;
    this.list[index] = output;
  }
}

function at(step: number, fields: Partial<JobEntry> = {}): JobEntry {
  const numbers = { ...job().numbers, step, remaining_s: 60 };
  return job({ numbers, ...fields });
}

function kept(entry: JobEntry, fields: Partial<JobBundle> = {}): any {
  const data = {
    [JOB_MIME]: bundle({ job: entry, saved_s: 10, ...fields }),
    'image/png': PNG,
    'text/plain': 'as before'
  };
  return { output_type: 'display_data', data, metadata: {} };
}

class Model {
  changed = new Signal<any, void>(this);
  jobs: JobEntry[] = [];
  lastHeard = 50;
  asked = 0;
  answer: (() => Promise<SavedOutput>) | null = null;
  api = {
    output: () => {
      this.asked += 1;
      return this.answer!();
    }
  };
  job(jobId: string) {
    return this.jobs.find(one => one.job_id === jobId);
  }
  tell(entry: JobEntry) {
    this.jobs = [entry];
    this.changed.emit();
  }
}

function answer(entry: JobEntry): Promise<SavedOutput> {
  return Promise.resolve({
    job: bundle({ job: entry, saved_s: 40 }),
    text: 'newest',
    picture: PNG,
    width_px: 960
  });
}

async function open(list: any[], writable = true) {
  const model = new Model();
  const outputs = new Outputs(list);
  const saves: any[] = [];
  const context: any = {
    ready: Promise.resolve(),
    isDisposed: false,
    contentsModel: { writable },
    model: { cells: [{ type: 'markdown' }, { type: 'code', outputs }] },
    save: async () => void saves.push(JSON.parse(JSON.stringify(list)))
  };
  const saved = new SavedOutputs(context, model as any);
  await context.ready;
  const settle = () => new Promise(resolve => setTimeout(resolve));
  return { model, outputs, saves, context, saved, settle };
}

const jobIn = (output: any): JobEntry => output.data[JOB_MIME].job;

describe('a saved notebook', () => {
  it('holds what the server knows when it is saved, in every view of the job', async () => {
    const { model, outputs, saves, context } = await open([
      kept(at(1)),
      { output_type: 'stream', text: 'hello' },
      kept(at(1))
    ]);
    model.answer = () => answer(at(7));
    model.tell(at(7));
    expect(outputs.writes).toBe(0);
    await context.save();
    expect(saves).toHaveLength(1);
    for (const index of [0, 2]) {
      expect(jobIn(saves[0][index]).numbers.step).toBe(7);
      expect(saves[0][index].data['text/plain']).toBe('newest');
    }
    expect(model.asked).toBe(1);
  });

  it('is not touched while the job only goes on', async () => {
    const { model, outputs } = await open([kept(at(1))]);
    [2, 3, 4].forEach(step => model.tell(at(step)));
    expect([outputs.writes, model.asked]).toEqual([0, 0]);
  });

  it('takes the end of a job at once, and only once', async () => {
    const { model, outputs, settle, context } = await open([kept(at(1))]);
    const end = at(9, { state: 'succeeded' });
    model.answer = () => answer(end);
    model.tell(end);
    await settle();
    expect(jobIn(outputs.list[0]).state).toBe('succeeded');
    model.tell({ ...end });
    await context.save();
    expect([outputs.writes, model.asked]).toEqual([1, 1]);
  });

  it('gives up no rows for an answer that knows fewer', async () => {
    const { model, outputs, context } = await open([kept(at(8))]);
    model.answer = () => answer(at(3));
    model.tell(at(3));
    await context.save();
    expect(jobIn(outputs.list[0]).numbers.step).toBe(8);
    expect(outputs.writes).toBe(0);
  });

  it('says what the page knows where the server does not answer', async () => {
    const { model, outputs, context, saves } = await open([kept(at(1))]);
    model.answer = () => Promise.reject(new Error('busy'));
    model.tell(at(5, { state: 'failed' }));
    await context.save();
    const [output] = outputs.list;
    expect(saves).toHaveLength(1);
    expect(jobIn(output)).toMatchObject({ state: 'failed' });
    expect(jobIn(output).numbers.step).toBe(5);
    expect(jobIn(output).numbers.remaining_s).toBeNull();
    expect(output.data['image/png']).toBeUndefined();
    expect(output.data[JOB_MIME].saved_s).toBe(model.lastHeard);
  });

  it('saves although the server never answers', async () => {
    jest.useFakeTimers();
    const { model, context, saves } = await open([kept(at(1))]);
    model.answer = () => new Promise(() => undefined);
    model.tell(at(5));
    const done = context.save();
    await jest.advanceTimersByTimeAsync(60_000);
    await done;
    jest.useRealTimers();
    expect(jobIn(saves[0][0]).numbers.step).toBe(5);
  });

  it.each([
    ['is read-only', [kept(at(1))], false, at(9)],
    ['has been cleared', [], true, at(9)],
    ['is of a newer version', [kept(at(1), { version: 99 })], true, at(9)],
    ['holds another job', [kept(at(1, { job_id: 'j-99999999' }))], true, at(9)]
  ])('is left alone if it %s', async (_, list, writable, entry) => {
    const { model, outputs, context, settle } = await open(list, writable);
    model.answer = () => answer(entry);
    model.tell({ ...entry, state: 'succeeded' });
    await settle();
    await context.save();
    expect([outputs.writes, model.asked]).toEqual([0, 0]);
  });

  it('is left alone once its panel is closed', async () => {
    const { model, outputs, saved, settle } = await open([kept(at(1))]);
    model.answer = () => answer(at(9));
    saved.dispose();
    model.tell(at(9, { state: 'succeeded' }));
    await settle();
    expect(outputs.writes).toBe(0);
    expect(model.job(JOB_ID)).toBeDefined();
  });
});
