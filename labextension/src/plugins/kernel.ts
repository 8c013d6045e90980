/** Marks notebooks with a busy kernel: the submit panel then says that clicks have to wait. */

import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';

export const kernelPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-mntrain:kernel',
  description: 'Lets the submit panel say that the kernel is busy.',
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
  tell();
}
