/** Files plugin: what jobs wrote, in tabs that survive a reload. */

import { folderIcon } from '@jupyterlab/ui-components';

import { CommandIDs } from '../tokens';
import { jobArguments, tabPlugin } from './tabs';
import { trans } from '../trans';

export const jobFilesPlugin = tabPlugin(
  'job-files',
  'Files that jobs wrote.',
  (add, model) => {
    const { read } = jobArguments(model);
    add({
      namespace: 'mntrain-files',
      command: CommandIDs.files,
      options: { label: trans.__('Show the files that a job wrote') },
      icon: folderIcon,
      mode: 'split-bottom',
      takes: {
        described: { jobId: ['string', 'The job; default: the newest.'] },
        read: given => read({ jobId: given.jobId })
      },
      make: async args => {
        const { filesWidget } = await import('../files/view');
        return filesWidget({ model, ...args });
      },
      entitle: (title, { jobId }) => {
        const name = model.job(jobId)?.name ?? jobId;
        title.label = trans.__('%1: files', name);
      }
    });
  }
);
