/** History plugin: what nodes did, in tabs that survive a reload. */

import { historyIcon } from '@jupyterlab/ui-components';

import { CommandIDs } from '../tokens';
import { tabPlugin } from './tabs';
import { trans } from '../trans';

export const historyPlugin = tabPlugin(
  'history',
  'Histories of nodes.',
  (add, model, app) => {
    const { commands } = app;
    add({
      namespace: 'mntrain-history',
      command: CommandIDs.nodeHistory,
      options: {
        label: trans.__('Show the history of a node'),
        caption: trans.__('Use, memory, temperature and network, as a tab')
      },
      icon: historyIcon,
      takes: {
        described: { key: ['string', 'The node’s key; default: the first.'] },
        read: given => {
          const key = String(given.key ?? model.nodes[0]?.key ?? '');
          return key ? { key } : null;
        }
      },
      make: async ({ key }) => {
        const { historyWidget } = await import('../history/view');
        return historyWidget({ model, commands, nodeKey: key });
      },
      entitle: (title, { key }) => {
        const node = model.nodes.find(one => one.key === key);
        title.label = trans.__('%1: history', node?.name ?? key);
      }
    });
  }
);
