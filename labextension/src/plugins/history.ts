/** History plugin: what nodes did, in tabs that survive a reload. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  MainAreaWidget,
  type ReactWidget,
  WidgetTracker
} from '@jupyterlab/apputils';
import { ITranslator } from '@jupyterlab/translation';
import { historyIcon } from '@jupyterlab/ui-components';

import { historyWidget } from '../history/view';
import { CommandIDs, IClusterModel } from '../tokens';
import { trans, useLanguage } from '../trans';
import { describe } from './commands/context';

const NAMESPACE = 'mntrain-history';

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
    const tracker = new WidgetTracker<MainAreaWidget<ReactWidget>>({
      namespace: NAMESPACE
    });
    app.commands.addCommand(CommandIDs.nodeHistory, {
      label: trans.__('Show the history of a node'),
      caption: trans.__('Use, memory, temperature and network, as a tab'),
      icon: historyIcon,
      describedBy: describe({ key: ['string', 'The node’s key.'] }),
      execute: args => {
        const nodeKey = String(args.key ?? model.nodes[0]?.key ?? '');
        const id = `${NAMESPACE}-${nodeKey}`;
        if (nodeKey && !tracker.find(one => one.id === id)) {
          const { commands } = app;
          const content = historyWidget({ model, commands, nodeKey });
          const widget = new MainAreaWidget({ content });
          const node = model.nodes.find(one => one.key === nodeKey);
          widget.id = id;
          widget.title.icon = historyIcon;
          widget.title.closable = true;
          widget.title.label = trans.__('%1: history', node?.name ?? nodeKey);
          void tracker.add(widget);
          app.shell.add(widget, 'main');
        }
        if (nodeKey) {
          app.shell.activateById(id);
        }
      }
    });
    void restorer?.restore(tracker, {
      command: CommandIDs.nodeHistory,
      args: widget => ({ key: widget.id.slice(NAMESPACE.length + 1) }),
      name: widget => widget.id
    });
  }
};
