/** Runs plugin: the list of all runs, and comparisons of some, in tabs. */

import { LETTERS } from '../compare/charts';
import { Comparison } from '../compare/controller';
import { CompareWidget } from '../compare/view';
import { mntrainIcon } from '../icons';
import { RunListWidget } from '../runs/list';
import { RunListing } from '../runs/listing';
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
      make: () => new RunListWidget(new RunListing(model), app.commands),
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
      make: ({ jobIds }) => new CompareWidget(new Comparison(model, jobIds)),
      entitle: (title, { jobIds }) => {
        title.label = trans.__('Compare %1 runs', jobIds.length);
      }
    });
  }
);
