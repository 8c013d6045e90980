/** Marks notebooks with a busy kernel, where clicks have to wait, and panels that lost theirs. */

import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';

import { replaceLost } from './lost_panels';
import { tendPanels } from './panels';

/** In these the widgets of a notebook have lost their kernel. */
const ENDED = new Set(['restarting', 'autorestarting', 'terminating', 'dead']);

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
    if (status && ENDED.has(status)) {
      replaceLost(panel);
    }
  };
  panel.sessionContext.statusChanged.connect(tell);
  tendPanels(panel);
  tell();
}
