/**
 * Saved outputs: what a notebook keeps of its jobs. Asked for before each save and when a job ends,
 * because after a reload of the page or a restart of the kernel nobody else writes it.
 */

import type { NotebookPanel } from '@jupyterlab/notebook';
import type { IDisposable } from '@lumino/disposable';

import type { JobBundle, JobEntry, SavedOutput } from '../schema';
import type { IClusterModel } from '../tokens';
import { OVER } from '../words';
import { checkBundle, JOB_MIME } from '../liveview/bundle';
import { lastKnown } from './last_known';

/** Longest time that a save waits for the server; a later answer is for the next save. */
const LONGEST_MS = 8000;

export type Context = Pick<
  NotebookPanel['context'],
  'ready' | 'save' | 'model' | 'contentsModel' | 'isDisposed'
>;

/** The outputs of a code cell, as far as they are of use here. */
interface IOutputs {
  readonly length: number;
  get(index: number): { data?: Record<string, unknown>; toJSON(): object };
  set(index: number, output: object): void;
}

/** One output of a notebook that shows a job. */
interface IPlace {
  outputs: IOutputs;
  index: number;
  kept: JobBundle;
  hasPicture: boolean;
}

export class SavedOutputs implements IDisposable {
  constructor(
    private context: Context,
    private model: IClusterModel
  ) {
    const save = context.save.bind(context);
    context.save = async () => {
      await this.refresh();
      return save();
    };
    void context.ready.then(() => {
      if (!this.isDisposed) {
        model.changed.connect(this.look, this);
        this.look();
      }
    });
  }

  isDisposed = false;

  dispose(): void {
    this.isDisposed = true;
    this.model.changed.disconnect(this.look, this);
  }

  /** Update every job that may have changed; if the server is slow, with what the page knows. */
  async refresh(): Promise<void> {
    const waiting = this.behind();
    const asked = [...waiting].map(async jobId => {
      if (await this.ask(jobId)) {
        waiting.delete(jobId);
      }
    });
    let timer = 0;
    const late = new Promise<void>(resolve => {
      timer = window.setTimeout(resolve, LONGEST_MS);
    });
    await Promise.race([Promise.all(asked), late]);
    window.clearTimeout(timer);
    this.places()
      .filter(place => waiting.has(place.kept.job.job_id))
      .forEach(place => this.putFromPage(place));
  }

  /** Once a job has ended, its end is written at once: the page may be closed without a save. */
  private look(): void {
    const { jobs } = this.model;
    if (jobs === this.seen) {
      return;
    }
    this.seen = jobs;
    const ended = jobs.filter(
      job => OVER.has(job.state) && !this.ended.has(idOf(job))
    );
    for (const job of ended) {
      this.ended.add(idOf(job));
    }
    if (ended.length) {
      const ids = new Set(ended.map(job => job.job_id));
      for (const jobId of this.behind()) {
        if (ids.has(jobId)) {
          void this.ask(jobId);
        }
      }
    }
  }

  /** Whether the server has answered. */
  private ask(jobId: string): Promise<boolean> {
    const before = this.asked.get(jobId);
    const asked =
      before ??
      this.model.api
        .output(jobId)
        .then(answer => this.take(answer))
        .catch(() => false)
        .finally(() => this.asked.delete(jobId));
    this.asked.set(jobId, asked);
    return asked;
  }

  private take(answer: SavedOutput): boolean {
    const { job_id } = answer.job.job;
    for (const place of this.places()) {
      if (place.kept.job.job_id === job_id && isNewer(answer.job, place)) {
        this.put(place, answer);
      }
    }
    return true;
  }

  private put({ outputs, index }: IPlace, answer: SavedOutput): void {
    const { job, text, picture, width_px } = answer;
    const before = outputs.get(index).toJSON();
    const data = {
      [JOB_MIME]: job,
      ...(picture ? { 'image/png': picture } : {}),
      'text/plain': text
    };
    const metadata = picture ? { 'image/png': { width: width_px } } : {};
    outputs.set(index, { ...before, data, metadata });
  }

  /** What the page knows, if that is newer than what is kept. */
  private putFromPage(place: IPlace): void {
    const { kept } = place;
    const entry = this.model.job(kept.job.job_id);
    if (
      entry &&
      (entry.state !== kept.job.state ||
        entry.attempt !== kept.job.attempt ||
        stepOf(entry) > stepOf(kept.job))
    ) {
      const heard = this.model.lastHeard ?? kept.saved_s;
      this.put(place, lastKnown(kept, entry, heard));
    }
  }

  /** Jobs of the notebook that may have changed since they were written. */
  private behind(): Set<string> {
    const old = this.places().filter(place => this.isBehind(place));
    return new Set(old.map(({ kept }) => kept.job.job_id));
  }

  /** Whether the page knows the job, and it may have changed since it was written. */
  private isBehind({ kept, hasPicture }: IPlace): boolean {
    const entry = this.model.job(kept.job.job_id);
    return (
      entry !== undefined &&
      !(
        hasPicture &&
        OVER.has(kept.job.state) &&
        OVER.has(entry.state) &&
        kept.job.attempt >= entry.attempt &&
        stepOf(kept.job) >= stepOf(entry)
      )
    );
  }

  /** Outputs with jobs that this page may change. */
  private places(): IPlace[] {
    const { context } = this;
    if (this.isDisposed || context.isDisposed || !isWritable(context)) {
      return [];
    }
    const found: IPlace[] = [];
    for (const cell of context.model.cells) {
      if (cell.type === 'code') {
        found.push(
          ...placesIn((cell as unknown as { outputs: IOutputs }).outputs)
        );
      }
    }
    return found;
  }

  private seen: ReadonlyArray<JobEntry> | null = null;
  private ended = new Set<string>();
  private asked = new Map<string, Promise<boolean>>();
}

function placesIn(outputs: IOutputs): IPlace[] {
  const found: IPlace[] = [];
  for (let index = 0; index < outputs.length; index += 1) {
    const data = outputs.get(index).data ?? {};
    const kept = JOB_MIME in data ? checkBundle(data[JOB_MIME]).bundle : null;
    if (kept) {
      found.push({ outputs, index, kept, hasPicture: 'image/png' in data });
    }
  }
  return found;
}

/** Whether an answer says more than what is kept: rows that are there are never given up. */
function isNewer(now: JobBundle, { kept, hasPicture }: IPlace): boolean {
  const [after, before] = [now.job, kept.job];
  if (after.attempt !== before.attempt) {
    return after.attempt > before.attempt;
  }
  if (OVER.has(after.state) !== OVER.has(before.state)) {
    return OVER.has(after.state);
  }
  if (stepOf(after) !== stepOf(before)) {
    return stepOf(after) > stepOf(before);
  }
  return now.saved_s > kept.saved_s || !hasPicture;
}

function stepOf(job: JobEntry): number {
  return job.numbers.step ?? 0;
}

function idOf({ job_id, attempt }: JobEntry): string {
  return `${job_id} ${attempt}`;
}

function isWritable(context: Context): boolean {
  return context.contentsModel?.writable !== false;
}
