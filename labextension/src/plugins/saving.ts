/** Saving plugin: notebooks keep the newest known state of their jobs. */

import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';

import { SavedOutputs } from '../saved/outputs';
import { IClusterModel } from '../tokens';

export const savingPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-mntrain:saving',
  description:
    'Keeps the newest state of jobs in the notebooks that show them.',
  autoStart: true,
  requires: [IClusterModel, INotebookTracker],
  activate: (
    _: JupyterFrontEnd,
    model: IClusterModel,
    notebooks: INotebookTracker
  ) => {
    const keep = (panel: NotebookPanel) => {
      const outputs = new SavedOutputs(panel.context, model);
      panel.disposed.connect(() => outputs.dispose());
    };
    notebooks.forEach(keep);
    notebooks.widgetAdded.connect((_, panel) => keep(panel));
  }
};
