/** Log plugin: logs in tabs that survive a reload. */

import { textEditorIcon } from '@jupyterlab/ui-components';

import { CommandIDs } from '../tokens';
import { jobArguments, tabPlugin } from './tabs';
import { trans } from '../trans';

export const logsPlugin = tabPlugin('logs', 'Logs of jobs.', (add, model) => {
  add({
    namespace: 'mntrain-log',
    command: CommandIDs.logs,
    options: { label: trans.__('Show the log of a job') },
    icon: textEditorIcon,
    mode: 'split-bottom',
    takes: jobArguments(model),
    make: async args => {
      const { logWidget } = await import('../logs/view');
      return logWidget({ model, ...args });
    },
    entitle: (title, { jobId, rank }) => {
      const name = model.job(jobId)?.name ?? jobId;
      title.label =
        rank === undefined
          ? trans.__('%1: log', name)
          : trans.__('%1: log of rank %2', name, rank);
    }
  });
});
