/** Stacks plugin: stacks of jobs in tabs. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ITranslator } from '@jupyterlab/translation';
import { listIcon } from '@jupyterlab/ui-components';

import { stacksWidget } from '../stacks/view';
import { CommandIDs, IClusterModel } from '../tokens';
import { addTabs, jobArguments } from './tabs';
import { trans, useLanguage } from '../trans';

export const stacksPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-mntrain:stacks',
  description: 'Stacks of jobs.',
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
      namespace: 'mntrain-stacks',
      command: CommandIDs.stacks,
      options: { label: trans.__('Show stacks of a job') },
      icon: listIcon,
      mode: 'split-bottom',
      takes: jobArguments(model),
      make: args => stacksWidget({ model, ...args }),
      entitle: (title, { jobId, rank }) => {
        const name = model.job(jobId)?.name ?? jobId;
        title.label =
          rank === undefined
            ? trans.__('%1: stacks', name)
            : trans.__('%1: stacks of rank %2', name, rank);
      }
    });
  }
};
