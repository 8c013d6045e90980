/** Marks notebooks with a busy kernel, where clicks have to wait, and panels that lost theirs. */

import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';

import { LostPanels } from './lost_panels';
import { runPanelAgain } from './notebooks';
import { tendPanels } from './panels';

export const kernelPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-mntrain:kernel',
  description: 'Lets the submit panel say that the kernel is busy, or gone.',
  autoStart: true,
  optional: [INotebookTracker],
  activate: (_: JupyterFrontEnd, notebooks: INotebookTracker | null) => {
    notebooks?.forEach(mark);
    notebooks?.widgetAdded.connect((__, panel) => mark(panel));
  }
};

/** Mark a notebook for the panel's style sheet, which delays the message. */
function mark(panel: NotebookPanel): void {
  const tell = () => {
    const status = panel.sessionContext.session?.kernel?.status;
    panel.node.dataset.mntKernel = status === 'busy' ? 'busy' : '';
  };
  panel.sessionContext.statusChanged.connect(tell);
  tendPanels(panel);
  new LostPanels(panel, cell => runPanelAgain(panel, cell));
  tell();
}
