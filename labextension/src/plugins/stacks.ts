/** Stacks plugin: stacks of jobs in tabs. */

import { listIcon } from '@jupyterlab/ui-components';

import { CommandIDs } from '../tokens';
import { jobArguments, tabPlugin } from './tabs';
import { trans } from '../trans';

export const stacksPlugin = tabPlugin(
  'stacks',
  'Stacks of jobs.',
  (add, model) => {
    add({
      namespace: 'mntrain-stacks',
      command: CommandIDs.stacks,
      options: { label: trans.__('Show stacks of a job') },
      icon: listIcon,
      mode: 'split-bottom',
      takes: jobArguments(model),
      make: async args => {
        const { stacksWidget } = await import('../stacks/view');
        return stacksWidget({ model, ...args });
      },
      entitle: (title, { jobId, rank }) => {
        const name = model.job(jobId)?.name ?? jobId;
        title.label =
          rank === undefined
            ? trans.__('%1: stacks', name)
            : trans.__('%1: stacks of rank %2', name, rank);
      }
    });
  }
);
