import { Notification } from '@jupyterlab/apputils';
import { Signal } from '@lumino/signaling';

import { decide } from '../plugins/commands/confirmation';
import { tellSave } from '../plugins/commands/saving';
import type { JobEntry } from '../schema';
import { endedAt } from '../words';
import { job } from './samples';

function saving(
  saved?: number,
  fields: Partial<JobEntry> = {},
  scheduled = false
): JobEntry {
  const entry = job(fields);
  const parts = entry.parts.map(part => ({
    ...part,
    saves: true,
    saved_step: saved,
    saved: saved ? [{ step: saved, time_s: 1, is_scheduled: scheduled }] : []
  }));
  return { ...entry, parts };
}

const buttons = () => [
  ...document.querySelectorAll<HTMLElement>('.jp-Dialog-button')
];

async function opened(): Promise<HTMLElement[]> {
  while (buttons().length === 0) {
    await new Promise(resolve => setTimeout(resolve));
  }
  await new Promise(resolve => requestAnimationFrame(resolve));
  return buttons();
}

describe('the question before a job is stopped', () => {
  it('offers to save first where the job can, and has no destructive button in focus', async () => {
    const answer = decide(saving(), 'stop');
    const [cancel, save, stop] = await opened();
    expect(document.activeElement).toBe(cancel);
    expect(stop.classList).toContain('jp-mod-warn');
    expect(save.classList).not.toContain('jp-mod-warn');
    save.click();
    expect(await answer).toBe('save');
  });

  it('does nothing on Enter', async () => {
    const answer = decide(saving(), 'kill');
    await opened();
    document.activeElement!.dispatchEvent(
      new KeyboardEvent('keydown', { key: 'Enter', bubbles: true })
    );
    expect(await answer).toBeNull();
  });

  it('stops only by its own button', async () => {
    const answer = decide(job(), 'stop');
    const [, stop] = await opened();
    expect(buttons()).toHaveLength(2);
    stop.click();
    expect(await answer).toBe('stop');
  });
});

describe('a save', () => {
  const model = (first: JobEntry) => {
    const fake = { changed: new Signal<any, void>({}), now: first };
    return Object.assign(fake, {
      job: () => fake.now,
      tell: (now: JobEntry) => {
        fake.now = now;
        fake.changed.emit();
      }
    });
  };
  const newest = () => Notification.manager.notifications[0];

  it('says at once that it waits, and later what is saved', () => {
    const known = model(saving(4));
    tellSave(known as any, known.now, false);
    expect(newest().type).toBe('in-progress');
    known.tell(saving(4));
    expect(newest().type).toBe('in-progress');
    known.tell(saving(8, {}, true));
    expect(newest().type).toBe('in-progress');
    known.tell(saving(9));
    expect(newest().type).toBe('success');
    expect(newest().message).toContain('9');
  });

  it('says when the job ended without it', () => {
    const known = model(saving(4));
    tellSave(known as any, known.now, true);
    known.tell(saving(4, { state: 'failed' }));
    expect(newest().type).toBe('warning');
  });
});

test('a job has ended when the last of its parts has', () => {
  const ended = job({ state: 'succeeded' });
  const parts = ended.parts.map((part, index) => ({
    ...part,
    ended_s: 100 + index
  }));
  expect(endedAt({ ...ended, parts })).toBe(101);
  expect(endedAt({ ...ended, parts, state: 'running' })).toBeNull();
  expect(endedAt(ended)).toBeNull();
});
