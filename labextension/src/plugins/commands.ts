/** What can be done with nodes and jobs: one registry for palette, menus and buttons. */

import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  Dialog,
  ICommandPalette,
  InputDialog,
  Notification,
  showDialog
} from '@jupyterlab/apputils';
import { IMainMenu } from '@jupyterlab/mainmenu';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import {
  ITranslator,
  nullTranslator,
  type TranslationBundle
} from '@jupyterlab/translation';

import { copy } from '../clipboard';
import { cellForJob, cellForNodes, NODES, PANEL } from '../cells';
import type { JobEntry } from '../schema';
import { showInvitation } from '../sidebar/invitation';
import { CommandIDs, IClusterModel, RequestError } from '../tokens';
import { OVER, saves } from '../words';
import { insertCell } from './notebooks';

const PLUGIN = 'jupyter-mntrain:commands';

const JOB = {
  type: 'object',
  properties: {
    jobId: { type: 'string', description: 'The job; the newest if not given.' }
  }
} as const;

const SAVE = {
  type: 'object',
  properties: {
    ...JOB.properties,
    andStop: { type: 'boolean', description: 'End the job after it.' }
  }
} as const;

const NONE = { type: 'object', properties: {} } as const;

export const commandsPlugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'Commands for nodes and jobs.',
  autoStart: true,
  requires: [IClusterModel],
  optional: [
    ITranslator,
    ICommandPalette,
    IMainMenu,
    INotebookTracker,
    ISettingRegistry
  ],
  activate: (
    app: JupyterFrontEnd,
    model: IClusterModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    menu: IMainMenu | null,
    notebooks: INotebookTracker | null,
    settings: ISettingRegistry | null
  ) => {
    const trans = (translator ?? nullTranslator).load('jupyter_mntrain');
    const { commands } = app;
    let confirms = true;
    void settings
      ?.load(PLUGIN)
      .then(loaded => {
        const read = () => {
          confirms = loaded.get('confirm').composite as boolean;
        };
        loaded.changed.connect(read);
        read();
      })
      .catch(error => console.warn(`${PLUGIN}: no settings`, error));

    const chosen = (
      args: { jobId?: unknown },
      fits: (job: JobEntry) => boolean = () => true
    ): JobEntry | undefined =>
      args.jobId === undefined
        ? model.jobs.find(fits)
        : model.job(String(args.jobId));
    const isSaving = (job: JobEntry) => isOpen(job) && saves(job);
    const isOpen = (job: JobEntry) => !OVER.has(job.state);

    commands.addCommand(CommandIDs.launch, {
      label: trans.__('Launch…'),
      caption: trans.__(
        'A panel in a notebook: choose nodes, see what a launch will do, launch'
      ),
      describedBy: { args: NONE },
      execute: () => insertCell(app, notebooks, PANEL, true)
    });
    commands.addCommand(CommandIDs.stop, {
      label: trans.__('Stop a job'),
      describedBy: { args: JOB },
      isEnabled: args => chosen(args, isOpen) !== undefined,
      execute: async args => {
        const job = chosen(args, isOpen);
        if (
          job &&
          (!confirms || (await isSure(job, trans.__('Stop'), false, trans)))
        ) {
          await attempt(() => model.api.stop(job.job_id), trans);
        }
      }
    });
    commands.addCommand(CommandIDs.save, {
      label: args =>
        args.andStop
          ? trans.__('Stop a job after saving')
          : trans.__('Save a checkpoint'),
      describedBy: { args: SAVE },
      isEnabled: args => chosen(args, isSaving) !== undefined,
      execute: async args => {
        const job = chosen(args, isSaving);
        if (job) {
          const andStop = args.andStop === true;
          await attempt(() => model.api.save(job.job_id, andStop), trans);
        }
      }
    });
    commands.addCommand(CommandIDs.kill, {
      label: trans.__('Kill a job'),
      describedBy: { args: JOB },
      isEnabled: args => chosen(args, isOpen) !== undefined,
      execute: async args => {
        const job = chosen(args, isOpen);
        if (job && (await isSure(job, trans.__('Kill'), true, trans))) {
          await attempt(() => model.api.kill(job.job_id), trans);
        }
      }
    });
    commands.addCommand(CommandIDs.launchAgain, {
      label: trans.__('Launch a job again'),
      describedBy: { args: JOB },
      isEnabled: args => chosen(args) !== undefined,
      execute: async args => {
        const job = chosen(args);
        const again =
          job &&
          (await attempt(() => model.api.launchAgain(job.job_id), trans));
        if (again) {
          Notification.success(
            trans.__('%1 runs again as %2.', again.name, again.job_id),
            { autoClose: 4000 }
          );
        }
      }
    });
    commands.addCommand(CommandIDs.copySpec, {
      label: trans.__('Copy the spec of a job'),
      describedBy: { args: JOB },
      isEnabled: args => chosen(args) !== undefined,
      execute: async args => {
        const job = chosen(args);
        const file =
          job && (await attempt(() => model.api.spec(job.job_id), trans));
        if (!file) {
          return;
        }
        await copy(file.text);
        const left = file.left_out ?? [];
        if (left.length) {
          Notification.warning(
            trans.__(
              'Copied without secrets: %1 must be set again where it is launched.',
              left.join(', ')
            )
          );
        } else {
          Notification.success(
            trans.__(
              'Copied. Saved as %1, %mntrain launch runs it again.',
              file.name
            ),
            { autoClose: 4000 }
          );
        }
      }
    });
    commands.addCommand(CommandIDs.insertCell, {
      label: trans.__('Insert a cell'),
      describedBy: {
        args: {
          type: 'object',
          properties: {
            nodes: {
              type: 'array',
              items: { type: 'string' },
              description: 'Names of nodes to launch on.'
            },
            jobId: { type: 'string', description: 'A job to attach to.' }
          }
        }
      },
      execute: args => {
        const job = args.jobId ? model.job(String(args.jobId)) : undefined;
        const names = (args.nodes as string[] | undefined) ?? [];
        const nodes = model.nodes.filter(node => names.includes(node.name));
        const text = job
          ? cellForJob(job)
          : nodes.length
            ? cellForNodes(nodes)
            : NODES;
        return insertCell(app, notebooks, text);
      }
    });
    commands.addCommand(CommandIDs.addNode, {
      label: trans.__('Add a node by its address…'),
      describedBy: {
        args: {
          type: 'object',
          properties: {
            address: { type: 'string', description: 'host or host:port' }
          }
        }
      },
      execute: async args => {
        let address = args.address ? String(args.address) : null;
        if (address === null) {
          const asked = await InputDialog.getText({
            title: trans.__('Add a node'),
            label: trans.__('Its address, host or host:port'),
            placeholder: '192.168.1.11:8765',
            okLabel: trans.__('Add')
          });
          address = asked.button.accept ? asked.value : null;
        }
        if (address?.trim()) {
          const wanted = address.trim();
          const node = await attempt(() => model.api.addNode(wanted), trans);
          if (node) {
            Notification.success(trans.__('%1 is there.', node.name), {
              autoClose: 4000
            });
          }
        }
      }
    });
    commands.addCommand(CommandIDs.inviteNodes, {
      label: trans.__('Invite nodes…'),
      describedBy: {
        args: {
          type: 'object',
          properties: {
            uses: {
              type: 'number',
              description: 'How many machines may join with the same line.'
            }
          }
        }
      },
      execute: async args => {
        let uses = args.uses === undefined ? null : Number(args.uses);
        if (uses === null) {
          const asked = await InputDialog.getNumber({
            title: trans.__('Invite nodes'),
            label: trans.__('How many machines are to join?'),
            value: 1,
            okLabel: trans.__('Invite')
          });
          uses = asked.button.accept ? asked.value : null;
        }
        if (uses !== null) {
          const wanted = uses;
          const invitation = await attempt(
            () => model.api.invite(wanted),
            trans
          );
          if (invitation) {
            await showInvitation(invitation, trans);
          }
        }
      }
    });
    commands.addCommand(CommandIDs.forgetNode, {
      label: trans.__('Remove a node from the list'),
      describedBy: {
        args: {
          type: 'object',
          properties: { key: { type: 'string' } },
          required: ['key']
        }
      },
      isVisible: args => args.key !== undefined,
      execute: args =>
        attempt(() => model.api.forgetNode(String(args.key)), trans)
    });
    commands.addCommand(CommandIDs.measureLinks, {
      label: trans.__('Measure all links'),
      caption: trans.__('About a second per pair of nodes and direction'),
      describedBy: {
        args: {
          type: 'object',
          properties: {
            nodes: {
              type: 'array',
              items: { type: 'string' },
              description: 'Names; every node that is up if not given.'
            }
          }
        }
      },
      execute: async args => {
        const id = Notification.emit(
          trans.__('Measuring links…'),
          'in-progress',
          {
            autoClose: false
          }
        );
        const names = (args.nodes as string[] | undefined) ?? [];
        const done = await attempt(() => model.api.measureLinks(names), trans);
        Notification.dismiss(id);
        if (done) {
          Notification.success(
            trans._n('%1 link measured.', '%1 links measured.', done.length),
            { autoClose: 4000 }
          );
        }
      }
    });

    const shown = [
      CommandIDs.show,
      CommandIDs.launch,
      CommandIDs.attach,
      CommandIDs.logs,
      CommandIDs.save,
      CommandIDs.stop,
      CommandIDs.kill,
      CommandIDs.launchAgain,
      CommandIDs.copySpec,
      CommandIDs.insertCell,
      CommandIDs.inviteNodes,
      CommandIDs.addNode,
      CommandIDs.measureLinks
    ];
    const category = trans.__('Multi-node training');
    for (const command of shown) {
      palette?.addItem({ command, category });
    }
    const args = { andStop: true };
    palette?.addItem({ command: CommandIDs.save, category, args });
    menu?.viewMenu.addGroup([{ command: CommandIDs.show }], 30);
  }
};

/** What is lost is said before it is. */
async function isSure(
  job: JobEntry,
  verb: string,
  isHard: boolean,
  trans: TranslationBundle
): Promise<boolean> {
  const step = job.numbers.step ?? 0;
  const body = [
    step
      ? trans.__('It has made %1 steps; what it has not saved is lost.', step)
      : trans.__('It has made no step yet.'),
    isHard
      ? trans.__('Its processes get no time to end by themselves.')
      : trans.__('Its processes get 2 s to end by themselves.')
  ];
  const answer = await showDialog({
    title: `${verb} ${job.name}?`,
    body: body.join(' '),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.warnButton({ label: verb })
    ]
  });
  return answer.button.accept;
}

/** The answer, or a notification that says what is wrong and what to do. */
async function attempt<T>(
  ask: () => Promise<T>,
  trans: TranslationBundle
): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    const hint = error instanceof RequestError ? error.hint : null;
    const message = (error as Error).message;
    Notification.error(
      hint ? trans.__('%1. Fix: %2.', message, hint) : message,
      { autoClose: false }
    );
    return undefined;
  }
}
