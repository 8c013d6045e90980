/** Commands that put a cell into a notebook. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';

import { cellForJob, cellForNodes, NODES, PANEL } from '../../cells';
import { CommandIDs, type IClusterModel } from '../../tokens';
import { insertCell } from '../notebooks';

export function addCellCommands(
  app: JupyterFrontEnd,
  model: IClusterModel,
  notebooks: INotebookTracker | null,
  trans: TranslationBundle
): void {
  app.commands.addCommand(CommandIDs.launch, {
    label: trans.__('Launch…'),
    caption: trans.__(
      'A panel in a notebook: choose nodes, see what a launch will do, launch'
    ),
    describedBy: { args: { type: 'object', properties: {} } },
    execute: () => insertCell(app, notebooks, PANEL, true)
  });
  app.commands.addCommand(CommandIDs.insertCell, {
    label: trans.__('Insert a cell'),
    describedBy: {
      args: {
        type: 'object',
        properties: {
          nodes: {
            type: 'array',
            items: { type: 'string' },
            description: 'Names of nodes to launch on.'
          },
          jobId: { type: 'string', description: 'A job to attach to.' }
        }
      }
    },
    execute: args => {
      const job = args.jobId ? model.job(String(args.jobId)) : undefined;
      const names = (args.nodes as string[] | undefined) ?? [];
      const nodes = model.nodes.filter(node => names.includes(node.name));
      const chosen = nodes.length ? cellForNodes(nodes) : NODES;
      return insertCell(app, notebooks, job ? cellForJob(job) : chosen);
    }
  });
}
