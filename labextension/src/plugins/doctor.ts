/** Doctor plugin: what keeps nodes from training, in tabs that survive a reload. */

import { checkIcon } from '@jupyterlab/ui-components';

import { CommandIDs } from '../tokens';
import { tabPlugin } from './tabs';
import { trans } from '../trans';

export const doctorPlugin = tabPlugin(
  'doctor',
  'What keeps nodes from training.',
  (add, model) => {
    add({
      namespace: 'mntrain-doctor',
      command: CommandIDs.doctor,
      options: {
        label: trans.__('Examine nodes'),
        caption: trans.__(
          'What keeps them from training, with the fix; nothing is changed'
        )
      },
      icon: checkIcon,
      takes: {
        described: {
          nodes: ['strings', 'Names; default: all nodes, or those of the job.'],
          jobId: ['string', 'Also look for what this job reads and writes.']
        },
        read: ({ nodes, jobId }) => ({
          nodes: (nodes as string[] | undefined) ?? [],
          jobId: jobId as string | undefined
        })
      },
      make: async ({ nodes, jobId }) => {
        const { doctorWidget } = await import('../doctor/view');
        return doctorWidget({ model, nodes, jobId });
      },
      entitle: (title, { nodes, jobId }) => {
        const about = nodes.join(', ') || jobId;
        title.label = about
          ? trans.__('Doctor: %1', about)
          : trans.__('Doctor');
      }
    });
  }
);
