/** Runs plugin: the list of all runs, and comparisons of some, in tabs. */

import { LETTERS } from '../compare/letters';
import { mntrainIcon } from '../icons';
import { CommandIDs } from '../tokens';
import { tabPlugin } from './tabs';
import { trans } from '../trans';

export const runsPlugin = tabPlugin(
  'runs',
  'List of all runs, and comparisons.',
  (add, model, app) => {
    add({
      namespace: 'mntrain-runs',
      command: CommandIDs.runs,
      options: {
        label: trans.__('Runs'),
        caption: trans.__('All runs: search, compare, resume, delete')
      },
      icon: mntrainIcon,
      takes: { described: {}, read: () => ({}) },
      make: async () => {
        const { runListWidget } = await import('../runs/list');
        return runListWidget(model, app.commands);
      },
      entitle: title => {
        title.label = trans.__('Runs');
      }
    });
    add({
      namespace: 'mntrain-compare',
      command: CommandIDs.compare,
      options: {
        label: trans.__('Compare runs'),
        isVisible: () => false // the list of runs gives it the runs
      },
      icon: mntrainIcon,
      takes: {
        described: {
          jobIds: ['strings', 'A job of each of two to four runs.']
        },
        read: given => {
          const jobIds = (given.jobIds as string[] | undefined) ?? [];
          return jobIds.length
            ? { jobIds: jobIds.slice(0, LETTERS.length) }
            : null;
        }
      },
      make: async ({ jobIds }) => {
        const { compareWidget } = await import('../compare/view');
        return compareWidget(model, jobIds);
      },
      entitle: (title, { jobIds }) => {
        title.label = trans.__('Compare %1 runs', jobIds.length);
      }
    });
  }
);
