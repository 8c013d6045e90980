/** Commands that put a cell into a notebook. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { INotebookTracker } from '@jupyterlab/notebook';

import { cellForJob, cellForNodes, NODES, PANEL } from '../../cells';
import { CommandIDs, type IClusterModel } from '../../tokens';
import { insertCell } from '../notebooks';
import { describe } from './context';
import { trans } from '../../trans';

export function addCellCommands(
  app: JupyterFrontEnd,
  model: IClusterModel,
  notebooks: INotebookTracker | null
): void {
  app.commands.addCommand(CommandIDs.launch, {
    label: trans.__('Launch…'),
    caption: trans.__(
      'Open a panel in a notebook: choose nodes, check, launch'
    ),
    describedBy: describe(),
    execute: () => insertCell(app, notebooks, model, PANEL, { runs: true })
  });
  app.commands.addCommand(CommandIDs.insertCell, {
    label: trans.__('Insert a cell'),
    describedBy: describe({
      nodes: ['strings', 'Names of the nodes to launch on.'],
      jobId: ['string', 'A job to attach to.']
    }),
    execute: args => {
      const job = args.jobId ? model.job(String(args.jobId)) : undefined;
      const names = (args.nodes as string[] | undefined) ?? [];
      const nodes = model.nodes.filter(node => names.includes(node.name));
      const chosen = nodes.length ? cellForNodes(nodes) : NODES;
      return insertCell(app, notebooks, model, job ? cellForJob(job) : chosen);
    }
  });
}
