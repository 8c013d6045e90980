/** Commands for runs: resume, start over, list and change checkpoints. */

import { Notification } from '@jupyterlab/apputils';

import type { Anyway } from '../../api';
import { problemText } from '../../problem';
import {
  askForSteps,
  askToDelete,
  askToResume,
  askToStartOver,
  showCheckpoints
} from '../../resume/dialogs';
import type { Change } from '../../resume/table';
import { obstacleText, pageProblem, readOffer } from '../../resume/texts';
import type {
  JobEntry,
  LaunchedJob,
  ResumeJob,
  ResumeOffer
} from '../../schema';
import { CommandIDs, RequestError } from '../../tokens';
import { trans } from '../../trans';
import { OVER } from '../../words';
import { launched } from './again';
import { type ICommandContext, request } from './context';
import type { AddJobCommand } from './jobs';

const isEnded = (job: JobEntry) => OVER.has(job.state);
const number = (given: unknown) =>
  given === undefined || given === null ? undefined : Number(given);

/** Asks the nodes, and reports what was started. */
class Runs {
  constructor(private context: ICommandContext) {}

  async offer({ job_id }: JobEntry): Promise<ResumeOffer | undefined> {
    const { api } = this.context.model;
    const given = await request(() => api.resumeOffer(job_id));
    return given && readOffer(given);
  }

  async goOn({ job_id }: JobEntry, asked: ResumeJob): Promise<void> {
    const { api } = this.context.model;
    const resume = (anyway: Anyway) =>
      inPage(api.resume(job_id, { ...asked, ...anyway }));
    this.tell(await request(() => launched(resume)));
  }

  async startOver(job: JobEntry): Promise<void> {
    const { api } = this.context.model;
    if (await askToStartOver(job)) {
      const again = (anyway: Anyway) => api.launchAgain(job.job_id, anyway);
      this.tell(await request(() => launched(again)));
    }
  }

  private tell(started: LaunchedJob | undefined): void {
    if (started) {
      tellStarted(this.context, started);
    }
  }
}

export function addResumeCommands(
  context: ICommandContext,
  add: AddJobCommand
): void {
  const runs = new Runs(context);
  addResume(runs, add);
  add(CommandIDs.launchAgain, {
    label: () => trans.__('Start a job over'),
    run: job => runs.startOver(job)
  });
  addCheckpoints(context, runs, add);
}

function addResume(runs: Runs, add: AddJobCommand): void {
  add(CommandIDs.resume, {
    label: () => trans.__('Resume a run'),
    args: {
      expectedStep: [
        'number',
        'The step that the person has confirmed; without it they are asked.'
      ],
      begin: ['number', 'Start a new run from the checkpoint of this step.'],
      more: ['boolean', 'Ask how many steps to make in all.']
    },
    fits: isEnded,
    run: async (job, { expectedStep, begin, more }) => {
      if (begin !== undefined || expectedStep !== undefined) {
        const expected_step = number(expectedStep);
        return runs.goOn(job, { expected_step, begin: number(begin) });
      }
      const offer = await runs.offer(job);
      if (!offer) {
        return;
      }
      if (more || offer.obstacle === 'finished') {
        const steps = await askForSteps(offer);
        return steps === null
          ? undefined
          : runs.goOn(job, { steps, expected_step: offer.step });
      }
      const answer = await askToResume(job, offer);
      if (answer === 'resume' && obstacleText(offer) === null) {
        await runs.goOn(job, { expected_step: offer.step });
      } else if (answer === 'start-over') {
        await runs.startOver(job);
      }
    }
  });
}

function addCheckpoints(
  { commands, model }: ICommandContext,
  runs: Runs,
  add: AddJobCommand
): void {
  const { api } = model;
  add(CommandIDs.checkpoints, {
    label: () => trans.__('Checkpoints of a job'),
    run: async job => {
      const offer = await runs.offer(job);
      if (!offer) {
        return;
      }
      const begin = (step: number) =>
        commands.execute(CommandIDs.resume, { jobId: job.job_id, begin: step });
      await showCheckpoints(job, {
        offer,
        begin: offer.obstacle === 'running' ? null : one => begin(one.step),
        change: (one, action) =>
          commands.execute(CommandIDs.changeCheckpoint, {
            jobId: job.job_id,
            step: one.step,
            action
          })
      });
    }
  });
  add(CommandIDs.changeCheckpoint, {
    label: () => trans.__('Pin or delete a checkpoint'),
    args: {
      step: ['number', 'The step of the checkpoint.'],
      action: ['string', 'pin, unpin or delete; the last asks first.']
    },
    isListed: false,
    run: async (job, { step, action }) => {
      const change = { step: Number(step), action: action as Change };
      if (change.action === 'delete') {
        const offer = await runs.offer(job);
        if (!offer || !(await askToDelete(offer, change.step))) {
          return undefined;
        }
      }
      return request(() => inPage(api.changeCheckpoint(job.job_id, change)));
    }
  });
}

/** A request whose refusal names what the page offers. */
async function inPage<T>(asked: Promise<T>): Promise<T> {
  try {
    return await asked;
  } catch (error) {
    throw error instanceof RequestError
      ? new RequestError(pageProblem(error.problem), error.status)
      : error;
  }
}

/** With notes on its nodes, which stay until they are closed. */
function tellStarted(
  { commands }: ICommandContext,
  { job, notes = [] }: LaunchedJob
): void {
  const started = trans.__('Started %1 as %2.', job.name, job.job_id);
  const text = [started, ...notes.map(problemText)].join('\n');
  Notification.emit(text, notes.length ? 'warning' : 'success', {
    autoClose: !notes.length && 8000,
    actions: [
      {
        label: trans.__('Attach'),
        callback: () =>
          void commands.execute(CommandIDs.attach, { jobId: job.job_id })
      }
    ]
  });
}
