/** Commands that change the Jupyter server's own machine: node, membership, service. */

import {
  Dialog,
  InputDialog,
  Notification,
  showDialog
} from '@jupyterlab/apputils';

import type { ChangedMachine } from '../../schema';
import { CommandIDs } from '../../tokens';
import { trans } from '../../trans';
import { describe, type ICommandContext, request, succeeded } from './context';

export function addOwnMachineCommands({
  commands,
  model
}: ICommandContext): void {
  commands.addCommand(CommandIDs.makeNode, {
    label: trans.__('Make this machine a node…'),
    caption: trans.__('The machine on which the Jupyter server runs'),
    describedBy: describe(),
    execute: async () => {
      const cluster = model.status?.cluster ?? '';
      const isSure = await confirmed(
        trans.__('Make this machine a node of %1?', cluster),
        trans.__(
          'An agent starts on the machine of the Jupyter server, as your user, and keeps running after you log out. Drivers of the cluster may run jobs with it. It listens on TCP port 8765, or on the next free one.'
        ),
        trans.__('Make it a node')
      );
      if (isSure) {
        await told(() => model.api.makeNode());
      }
    }
  });
  commands.addCommand(CommandIDs.joinCluster, {
    label: trans.__('Join a cluster…'),
    caption: trans.__('With a token from another machine'),
    describedBy: describe(),
    execute: async () => {
      const asked = await InputDialog.getPassword({
        title: trans.__('Join a cluster'),
        label: trans.__(
          'Token from mntrain invite (this machine becomes a node) or mntrain driver invite (it becomes a driver):'
        ),
        okLabel: trans.__('Join')
      });
      const token = asked.button.accept && asked.value?.trim();
      if (token) {
        await told(() => model.api.joinCluster(token));
      }
    }
  });
  commands.addCommand(CommandIDs.installService, {
    label: trans.__('Install the agent as a service…'),
    caption: trans.__('It starts at boot, and outlives your login'),
    describedBy: describe(),
    execute: async () => {
      const isSure = await confirmed(
        trans.__('Install the agent of this machine as a service?'),
        trans.__(
          'systemd starts it now and at boot; where there is no systemd, it starts on its own. Running jobs are not affected, and a service that you edited is kept.'
        ),
        trans.__('Install')
      );
      if (isSure) {
        await told(() => model.api.installService());
      }
    }
  });
}

async function confirmed(
  title: string,
  body: string,
  label: string
): Promise<boolean> {
  const buttons = [
    Dialog.cancelButton({ label: trans.__('Cancel') }),
    Dialog.okButton({ label })
  ];
  return (await showDialog({ title, body, buttons })).button.accept;
}

/** Change the machine, which takes seconds, and report the result. */
async function told(change: () => Promise<ChangedMachine>): Promise<void> {
  const id = Notification.emit(
    trans.__('Changing this machine…'),
    'in-progress',
    { autoClose: false }
  );
  const done = await request(change);
  Notification.dismiss(id);
  if (done) {
    const now = done.cluster
      ? trans.__('%1 has joined %2.', done.name, done.cluster)
      : trans.__('The agent runs as a service.');
    succeeded([now, ...(done.said ?? [])].join(' '));
  }
}
