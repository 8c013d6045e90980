/** History plugin: what nodes did, in tabs that survive a reload. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ITranslator } from '@jupyterlab/translation';
import { historyIcon } from '@jupyterlab/ui-components';

import { historyWidget } from '../history/view';
import { CommandIDs, IClusterModel } from '../tokens';
import { addTabs } from './tabs';
import { trans, useLanguage } from '../trans';

export const historyPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-mntrain:history',
  description: 'Histories of nodes.',
  autoStart: true,
  requires: [IClusterModel],
  optional: [ITranslator, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    model: IClusterModel,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null
  ) => {
    useLanguage(translator);
    const { commands } = app;
    addTabs(app, restorer, {
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
      make: ({ key }) => historyWidget({ model, commands, nodeKey: key }),
      entitle: (title, { key }) => {
        const node = model.nodes.find(one => one.key === key);
        title.label = trans.__('%1: history', node?.name ?? key);
      }
    });
  }
};
