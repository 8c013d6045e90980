/** Log plugin: logs in tabs that survive a reload. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ITranslator } from '@jupyterlab/translation';
import { textEditorIcon } from '@jupyterlab/ui-components';

import { logWidget } from '../logs/view';
import { CommandIDs, IClusterModel } from '../tokens';
import { addTabs, jobArguments } from './tabs';
import { trans, useLanguage } from '../trans';

export const logsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-mntrain:logs',
  description: 'Logs of jobs.',
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
      namespace: 'mntrain-log',
      command: CommandIDs.logs,
      options: { label: trans.__('Show the log of a job') },
      icon: textEditorIcon,
      mode: 'split-bottom',
      takes: jobArguments(model),
      make: args => logWidget({ model, ...args }),
      entitle: (title, { jobId, rank }) => {
        const name = model.job(jobId)?.name ?? jobId;
        title.label =
          rank === undefined
            ? trans.__('%1: log', name)
            : trans.__('%1: log of rank %2', name, rank);
      }
    });
  }
};
