/** Commands for a job: stop, save, kill, resume, start over, copy its spec. */

import { Notification } from '@jupyterlab/apputils';

import { copy } from '../../clipboard';
import type { JobEntry, SpecFile } from '../../schema';
import { CommandIDs } from '../../tokens';
import { OVER, saves } from '../../words';
import { type Decision, decide, isCanceled } from './confirmation';
import { addResumeCommands } from './resume';
import { describe, type ICommandContext, request, succeeded } from './context';
import { tellSave } from './saving';
import { trans } from '../../trans';

const isOpen = (job: JobEntry) => !OVER.has(job.state);
const isSaving = (job: JobEntry) => isOpen(job) && saves(job);

type Arguments = Record<string, unknown>;

interface IJobCommand {
  label: (args: Arguments) => string;
  /** Arguments besides the job. */
  args?: Parameters<typeof describe>[0];
  /** Which jobs it is for; default: all. */
  fits?: (job: JobEntry) => boolean;
  run: (job: JobEntry, args: Arguments) => Promise<unknown>;
  /** Whether it makes sense without arguments; default: yes. */
  isListed?: boolean;
}

export type AddJobCommand = ReturnType<typeof adder>;

function adder({ commands, model }: ICommandContext) {
  return (
    id: string,
    { label, args, fits, run, isListed = true }: IJobCommand
  ) => {
    /** The job with the given id, else the newest that fits. */
    const chosen = ({ jobId }: Arguments) =>
      jobId === undefined
        ? model.jobs.find(fits ?? (() => true))
        : model.job(String(jobId));
    const jobId = ['string', 'The job; default: the newest.'] as const;
    commands.addCommand(id, {
      label,
      describedBy: describe({ jobId, ...args }),
      isVisible: () => isListed,
      isEnabled: given => chosen(given) !== undefined,
      execute: async given => {
        const job = chosen(given);
        return job && run(job, given);
      }
    });
  };
}

/** @param confirms whether to confirm a stop; a kill is always confirmed. */
export function addJobCommands(
  context: ICommandContext,
  confirms: () => boolean
): void {
  const add = adder(context);
  const { api } = context.model;
  const save = async (job: JobEntry, andStop: boolean) => {
    if (await request(() => api.save(job.job_id, andStop))) {
      tellSave(context.model, job, andStop);
    }
  };
  const end = (job: JobEntry, how: Decision) => {
    const calls = {
      save: () => save(job, true),
      stop: () => request(() => api.stop(job.job_id)),
      kill: () => request(() => api.kill(job.job_id))
    };
    return how === null ? Promise.resolve() : calls[how]();
  };
  add(CommandIDs.stop, {
    label: () => trans.__('Stop a job'),
    fits: isOpen,
    run: async job => end(job, confirms() ? await decide(job, 'stop') : 'stop')
  });
  add(CommandIDs.kill, {
    label: () => trans.__('Kill a job'),
    fits: isOpen,
    run: async job => end(job, await decide(job, 'kill'))
  });
  add(CommandIDs.save, {
    label: args =>
      args.andStop
        ? trans.__('Save a checkpoint and stop the job')
        : trans.__('Save a checkpoint'),
    args: {
      andStop: ['boolean', 'Stop the job once the checkpoint is saved.']
    },
    fits: isSaving,
    run: (job, { andStop }) => save(job, andStop === true)
  });
  context.commands.addCommand(CommandIDs.cancelLaunch, {
    label: trans.__('Cancel a launch that waits for nodes'),
    describedBy: describe({ cluster: ['string', 'Of its nodes.'] }),
    isVisible: () => false, // the sidebar gives it the cluster
    execute: async ({ cluster }) => {
      const launch = context.model.waiting.find(one => one.cluster === cluster);
      if (launch && (await isCanceled(launch))) {
        await request(() => api.cancelLaunch(launch.cluster));
      }
    }
  });
  addResumeCommands(context, add);
  add(CommandIDs.copySpec, {
    label: () => trans.__('Copy the spec of a job'),
    run: async job => {
      const file = await request(() => api.spec(job.job_id));
      await (file && copySpec(file));
    }
  });
}

async function copySpec({ name, text, left_out }: SpecFile): Promise<void> {
  await copy(text);
  if (left_out?.length) {
    Notification.warning(
      trans.__(
        'Copied without secrets: %1 will come from the environment that launches it.',
        left_out.join(', ')
      )
    );
  } else {
    succeeded(
      trans.__(
        'Copied. Save it as %1 and launch it with %mntrain launch.',
        name
      )
    );
  }
}
