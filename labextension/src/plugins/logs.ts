/** Log plugin: logs in tabs that survive a reload. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { textEditorIcon } from '@jupyterlab/ui-components';

import { type ILogProps, LogWidget } from '../logs/view';
import { CommandIDs, IClusterModel } from '../tokens';
import { describe } from './commands/context';

export const logsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-mntrain:logs',
  description: 'Logs of jobs.',
  autoStart: true,
  requires: [IClusterModel],
  optional: [ITranslator, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    model: IClusterModel,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null
  ) => {
    const trans = (translator ?? nullTranslator).load('jupyter_mntrain');
    const tracker = new WidgetTracker<MainAreaWidget<LogWidget>>({
      namespace: 'mntrain-logs'
    });
    app.commands.addCommand(CommandIDs.logs, {
      label: trans.__('Show the log of a job'),
      describedBy: describe({
        jobId: ['string', 'The job; default: the newest.'],
        rank: ['number', 'Only this rank.']
      }),
      execute: args => {
        const jobId = String(args.jobId ?? model.jobs[0]?.job_id ?? '');
        if (!jobId) {
          return;
        }
        const rank = typeof args.rank === 'number' ? args.rank : undefined;
        const id = `mntrain-log-${jobId}-${rank ?? 'all'}`;
        const open = tracker.find(widget => widget.id === id);
        if (open) {
          app.shell.activateById(id);
          return open;
        }
        const widget = makeTab({ model, jobId, rank, trans }, id);
        void tracker.add(widget);
        app.shell.add(widget, 'main', { mode: 'split-bottom' });
        app.shell.activateById(id);
        return widget;
      }
    });
    void restorer?.restore(tracker, {
      command: CommandIDs.logs,
      args: ({ content }) => {
        const { jobId, rank } = content.props;
        return rank === undefined ? { jobId } : { jobId, rank };
      },
      name: widget => widget.id
    });
  }
};

function makeTab(props: ILogProps, id: string): MainAreaWidget<LogWidget> {
  const { model, jobId, rank, trans } = props;
  const widget = new MainAreaWidget({ content: new LogWidget(props) });
  widget.id = id;
  const name = model.job(jobId)?.name ?? jobId;
  widget.title.label =
    rank === undefined
      ? trans.__('%1: log', name)
      : trans.__('%1: log of rank %2', name, rank);
  widget.title.icon = textEditorIcon;
  widget.title.closable = true;
  return widget;
}
