/** Actions on runs of the list; those that change something ask first. */

import { Dialog, InputDialog, showDialog } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { request } from '../plugins/commands/context';
import type { JobEntry, JobRemoval, LabelJob } from '../schema';
import { CommandIDs, type IClusterModel } from '../tokens';
import { trans } from '../trans';
import type { RunListing } from './listing';
import { removalText } from './removal';
import { type IRun, isOver } from './run';

/** A requested job is sent within one round of the server's updates. */
const TOLD_MS = 10_000;

export class RunActions {
  constructor(
    private listing: RunListing,
    private commands: CommandRegistry
  ) {}

  get isReadOnly(): boolean {
    return this.listing.model.status?.is_read_only ?? false;
  }

  attach = (job: JobEntry) => this.execute(CommandIDs.attach, job);

  showLog = (job: JobEntry) => this.execute(CommandIDs.logs, job);

  showFiles = (job: JobEntry) => this.execute(CommandIDs.files, job);

  resume = (job: JobEntry) => this.execute(CommandIDs.resume, job);

  showCheckpoints = (job: JobEntry) =>
    this.execute(CommandIDs.checkpoints, job);

  async compare(runs: ReadonlyArray<IRun>): Promise<void> {
    const jobIds = runs.map(run => run.newest.job_id);
    await this.commands.execute(CommandIDs.compare, { jobIds });
  }

  async rename(job: JobEntry): Promise<void> {
    const answer = await InputDialog.getText({
      title: trans.__('Rename %1', job.name),
      label: trans.__('Name of %1; empty = its original name', job.job_id),
      text: job.name,
      okLabel: trans.__('Rename')
    });
    await this.label(job, answer.button.accept, { name: answer.value ?? '' });
  }

  async editNote(job: JobEntry): Promise<void> {
    const answer = await InputDialog.getText({
      title: trans.__('Note on %1', job.name),
      label: trans.__('Note on %1; empty = none', job.job_id),
      text: job.note ?? '',
      okLabel: trans.__('Save')
    });
    await this.label(job, answer.button.accept, { note: answer.value ?? '' });
  }

  /** Delete these runs, or one job of a run, once the person has agreed. */
  async remove(runs: ReadonlyArray<IRun>, job?: JobEntry): Promise<void> {
    for (const run of runs.filter(isOver)) {
      const jobs = job ? [job] : run.jobs;
      const plans = await request(() => this.plans(jobs));
      if (!plans) {
        return;
      }
      const how = await askToRemove(run, jobs, plans);
      if (!how) {
        return;
      }
      const { withCheckpoints } = how;
      // The newest last: it is the one that says what the run was.
      for (const one of [...jobs].reverse()) {
        const { api } = this.listing.model;
        await request(() => api.remove(one.job_id, withCheckpoints));
      }
      await this.listing.read();
    }
  }

  private plans(jobs: ReadonlyArray<JobEntry>): Promise<JobRemoval[]> {
    const { api } = this.listing.model;
    return Promise.all(jobs.map(job => api.planRemoval(job.job_id)));
  }

  private async label(
    job: JobEntry,
    isWanted: boolean,
    label: LabelJob
  ): Promise<void> {
    const { api } = this.listing.model;
    if (isWanted && (await request(() => api.label(job.job_id, label)))) {
      await this.listing.read();
    }
  }

  private async execute(command: string, { job_id }: JobEntry): Promise<void> {
    if (await request(() => known(this.listing.model, job_id))) {
      await this.commands.execute(command, { jobId: job_id });
    }
  }
}

/** Have the server send a job that ended long ago, and wait for it. */
export async function known(
  model: IClusterModel,
  jobId: string
): Promise<JobEntry> {
  const found = model.job(jobId);
  if (found) {
    return found;
  }
  const asked = await model.api.job(jobId);
  return new Promise(resolve => {
    const done = (entry: JobEntry) => {
      window.clearTimeout(late);
      model.changed.disconnect(look);
      resolve(entry);
    };
    const look = () => {
      const told = model.job(jobId);
      if (told) {
        done(told);
      }
    };
    const late = window.setTimeout(() => done(asked), TOLD_MS);
    model.changed.connect(look);
    look();
  });
}

/** Explain what is deleted. Returns whether to, and whether with the checkpoints. */
async function askToRemove(
  run: IRun,
  jobs: ReadonlyArray<JobEntry>,
  plans: ReadonlyArray<JobRemoval>
): Promise<{ withCheckpoints: boolean } | null> {
  const isWhole = jobs.length === run.jobs.length;
  const { lines, hasCheckpoints } = removalText(jobs, plans, isWhole);
  const what = isWhole ? run.newest.name : jobs[0].job_id;
  const paragraphs = lines.map(line =>
    React.createElement('p', { key: line }, line)
  );
  const answer = await showDialog({
    title: trans.__('Delete %1?', what),
    body: React.createElement(
      'div',
      { className: 'mnt mnt-removal' },
      paragraphs
    ),
    checkbox: hasCheckpoints
      ? { label: trans.__('Also delete its checkpoints'), checked: false }
      : null,
    // Enter does no harm: the first button has the focus.
    defaultButton: 0,
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: trans.__('Delete') })
    ]
  });
  return answer.button.accept
    ? { withCheckpoints: answer.isChecked === true }
    : null;
}
