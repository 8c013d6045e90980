/** Commands for nodes: add, invite, remove, measure their links. */

import { InputDialog, Notification } from '@jupyterlab/apputils';

import { showInvitation } from '../../sidebar/invitation';
import { CommandIDs } from '../../tokens';
import { describe, type ICommandContext, request, succeeded } from './context';
import { trans } from '../../trans';

export function addNodeCommands({ commands, model }: ICommandContext): void {
  const askAddress = async (): Promise<string | null> => {
    const asked = await InputDialog.getText({
      title: trans.__('Add a node'),
      label: trans.__('Address: host or host:port'),
      placeholder: '192.168.1.11:8765',
      okLabel: trans.__('Add')
    });
    return asked.button.accept ? asked.value : null;
  };
  commands.addCommand(CommandIDs.addNode, {
    label: trans.__('Add a node by address…'),
    describedBy: describe({ address: ['string', 'host or host:port'] }),
    execute: async args => {
      const given = args.address ? String(args.address) : await askAddress();
      const address = given?.trim();
      const node = address && (await request(() => model.api.addNode(address)));
      if (node) {
        succeeded(trans.__('Added %1.', node.name));
      }
    }
  });
  const askUses = async (): Promise<number | null> => {
    const asked = await InputDialog.getNumber({
      title: trans.__('Invite nodes'),
      label: trans.__('How many machines will join?'),
      value: 1,
      okLabel: trans.__('Invite')
    });
    return asked.button.accept ? asked.value : null;
  };
  commands.addCommand(CommandIDs.inviteNodes, {
    label: trans.__('Invite nodes…'),
    describedBy: describe({
      uses: ['number', 'How many machines may join with this command.']
    }),
    execute: async args => {
      const uses =
        args.uses === undefined ? await askUses() : Number(args.uses);
      const invitation =
        uses !== null && (await request(() => model.api.invite(uses)));
      if (invitation) {
        await showInvitation(invitation);
      }
    }
  });
  addRemoval({ commands, model });
  addMeasure({ commands, model });
}

function addRemoval({ commands, model }: ICommandContext): void {
  commands.addCommand(CommandIDs.forgetNode, {
    label: trans.__('Remove a node from the list'),
    describedBy: describe({ key: ['string', 'The node’s key.'] }),
    isVisible: args => args.key !== undefined,
    execute: args => request(() => model.api.forgetNode(String(args.key)))
  });
  commands.addCommand(CommandIDs.forgetSilent, {
    label: trans.__('Remove silent nodes from the list'),
    caption: trans.__('They come back when they answer again'),
    describedBy: describe(),
    execute: async () => {
      for (const node of model.nodes) {
        if (node.view.liveness === 'lost') {
          await request(() => model.api.forgetNode(node.key));
        }
      }
    }
  });
}

function addMeasure({ commands, model }: ICommandContext): void {
  commands.addCommand(CommandIDs.measureLinks, {
    label: trans.__('Measure all links'),
    caption: trans.__('About a second per pair of nodes and direction'),
    describedBy: describe({
      nodes: ['strings', 'Names; default: every node that is up.']
    }),
    execute: async args => {
      const id = Notification.emit(
        trans.__('Measuring links…'),
        'in-progress',
        { autoClose: false }
      );
      const names = (args.nodes as string[] | undefined) ?? [];
      const done = await request(() => model.api.measureLinks(names));
      Notification.dismiss(id);
      if (done) {
        succeeded(
          trans._n('Measured %1 link.', 'Measured %1 links.', done.length)
        );
      }
    }
  });
}
