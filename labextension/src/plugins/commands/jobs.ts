/** Commands for a job: stop, save, kill, launch again, copy its spec. */

import { Notification } from '@jupyterlab/apputils';

import { copy } from '../../clipboard';
import type { JobEntry } from '../../schema';
import { CommandIDs, type IClusterModel } from '../../tokens';
import { OVER, saves } from '../../words';
import { isSure } from './confirmation';
import { describe, type ICommandContext, request, succeeded } from './context';

const JOB: Parameters<typeof describe>[0] = {
  jobId: ['string', 'The job; default: the newest.']
};

const isOpen = (job: JobEntry) => !OVER.has(job.state);
const isSaving = (job: JobEntry) => isOpen(job) && saves(job);

/** The job with the given id, else the newest that fits. */
function chosen(
  model: IClusterModel,
  args: { jobId?: unknown },
  fits: (job: JobEntry) => boolean = () => true
): JobEntry | undefined {
  return args.jobId === undefined
    ? model.jobs.find(fits)
    : model.job(String(args.jobId));
}

/** @param confirms whether to confirm a stop; a kill is always confirmed. */
export function addJobCommands(
  context: ICommandContext,
  confirms: () => boolean
): void {
  addEndings(context, confirms);
  addSave(context);
  addLaunchAgain(context);
  addCopySpec(context);
}

function addEndings(
  { commands, model, trans }: ICommandContext,
  confirms: () => boolean
): void {
  commands.addCommand(CommandIDs.stop, {
    label: trans.__('Stop a job'),
    describedBy: describe(JOB),
    isEnabled: args => chosen(model, args, isOpen) !== undefined,
    execute: async args => {
      const job = chosen(model, args, isOpen);
      if (job && (!confirms() || (await isSure(job, 'stop', trans)))) {
        await request(() => model.api.stop(job.job_id), trans);
      }
    }
  });
  commands.addCommand(CommandIDs.kill, {
    label: trans.__('Kill a job'),
    describedBy: describe(JOB),
    isEnabled: args => chosen(model, args, isOpen) !== undefined,
    execute: async args => {
      const job = chosen(model, args, isOpen);
      if (job && (await isSure(job, 'kill', trans))) {
        await request(() => model.api.kill(job.job_id), trans);
      }
    }
  });
}

function addSave({ commands, model, trans }: ICommandContext): void {
  commands.addCommand(CommandIDs.save, {
    label: args =>
      args.andStop
        ? trans.__('Save a checkpoint and stop the job')
        : trans.__('Save a checkpoint'),
    describedBy: describe({
      ...JOB,
      andStop: ['boolean', 'Stop the job once the checkpoint is saved.']
    }),
    isEnabled: args => chosen(model, args, isSaving) !== undefined,
    execute: async args => {
      const job = chosen(model, args, isSaving);
      if (job) {
        const andStop = args.andStop === true;
        await request(() => model.api.save(job.job_id, andStop), trans);
      }
    }
  });
}

function addLaunchAgain({ commands, model, trans }: ICommandContext): void {
  commands.addCommand(CommandIDs.launchAgain, {
    label: trans.__('Launch a job again'),
    describedBy: describe(JOB),
    isEnabled: args => chosen(model, args) !== undefined,
    execute: async args => {
      const job = chosen(model, args);
      const again =
        job && (await request(() => model.api.launchAgain(job.job_id), trans));
      if (again) {
        succeeded(
          trans.__('Launched %1 again as %2.', again.name, again.job_id)
        );
      }
    }
  });
}

function addCopySpec({ commands, model, trans }: ICommandContext): void {
  commands.addCommand(CommandIDs.copySpec, {
    label: trans.__('Copy the spec of a job'),
    describedBy: describe(JOB),
    isEnabled: args => chosen(model, args) !== undefined,
    execute: async args => {
      const job = chosen(model, args);
      const file =
        job && (await request(() => model.api.spec(job.job_id), trans));
      if (!file) {
        return;
      }
      await copy(file.text);
      const left = file.left_out ?? [];
      if (left.length) {
        Notification.warning(
          trans.__(
            'Copied without secrets: set %1 again before you launch it.',
            left.join(', ')
          )
        );
      } else {
        succeeded(
          trans.__(
            'Copied. Save it as %1 and launch it with %mntrain launch.',
            file.name
          )
        );
      }
    }
  });
}
