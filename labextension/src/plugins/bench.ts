/** Bench plugin: the collective benchmark, in a tab that survives a reload. */

import { numberingIcon } from '@jupyterlab/ui-components';

import { CommandIDs } from '../tokens';
import { tabPlugin } from './tabs';
import { trans } from '../trans';

export const benchPlugin = tabPlugin(
  'bench',
  'What messages of training reach between nodes.',
  (add, model) => {
    add({
      namespace: 'mntrain-bench',
      command: CommandIDs.bench,
      options: {
        label: trans.__('Benchmark collectives'),
        caption: trans.__('How fast all-reduce, all-gather and messages are')
      },
      icon: numberingIcon,
      takes: {
        described: { nodes: ['strings', 'Names; default: all nodes.'] },
        read: ({ nodes }) => ({ nodes: (nodes as string[] | undefined) ?? [] })
      },
      make: async ({ nodes }) => {
        const { benchWidget } = await import('../bench/view');
        return benchWidget({ model, nodes });
      },
      entitle: (title, { nodes }) => {
        title.label = nodes.length
          ? trans.__('Collectives: %1', nodes.join(', '))
          : trans.__('Collectives');
      }
    });
  }
);
