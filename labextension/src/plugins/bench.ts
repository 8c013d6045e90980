/** Bench plugin: what messages of training reach between nodes, in a tab that survives a reload. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ITranslator } from '@jupyterlab/translation';
import { numberingIcon } from '@jupyterlab/ui-components';

import { benchWidget } from '../bench/view';
import { CommandIDs, IClusterModel } from '../tokens';
import { addTabs } from './tabs';
import { trans, useLanguage } from '../trans';

export const benchPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-mntrain:bench',
  description: 'What messages of training reach between nodes.',
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
    addTabs(app, restorer, {
      namespace: 'mntrain-bench',
      command: CommandIDs.bench,
      options: {
        label: trans.__('Benchmark collectives'),
        caption: trans.__('How fast all-reduce, all-gather and messages are')
      },
      icon: numberingIcon,
      takes: {
        described: { nodes: ['strings', 'Names; default: all nodes.'] },
        read: ({ nodes }) => ({ nodes: (nodes as string[] | undefined) ?? [] })
      },
      make: ({ nodes }) => benchWidget({ model, nodes }),
      entitle: (title, { nodes }) => {
        title.label = nodes.length
          ? trans.__('Collectives: %1', nodes.join(', '))
          : trans.__('Collectives');
      }
    });
  }
};
