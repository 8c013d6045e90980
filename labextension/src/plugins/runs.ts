/** Runs plugin: the list of all runs, and comparisons of some, in tabs. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ITranslator } from '@jupyterlab/translation';

import { LETTERS } from '../compare/charts';
import { Comparison } from '../compare/controller';
import { CompareWidget } from '../compare/view';
import { mntrainIcon } from '../icons';
import { RunListWidget } from '../runs/list';
import { RunListing } from '../runs/listing';
import { CommandIDs, IClusterModel } from '../tokens';
import { describe } from './commands/context';
import { trans, useLanguage } from '../trans';

const ID = 'mntrain-runs';

export const runsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-mntrain:runs',
  description: 'List of all runs, and comparisons.',
  autoStart: true,
  requires: [IClusterModel],
  optional: [ITranslator, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    model: IClusterModel,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null
  ) => {
    useLanguage(translator);
    const tracker = new WidgetTracker<MainAreaWidget<RunListWidget>>({
      namespace: ID
    });
    app.commands.addCommand(CommandIDs.runs, {
      label: trans.__('Runs'),
      caption: trans.__('All runs: search, compare, resume, delete'),
      icon: mntrainIcon,
      describedBy: describe(),
      execute: () => {
        let widget = tracker.find(one => one.id === ID);
        if (!widget) {
          const content = new RunListWidget(
            new RunListing(model),
            app.commands
          );
          widget = new MainAreaWidget({ content });
          widget.id = ID;
          widget.title.label = trans.__('Runs');
          widget.title.icon = mntrainIcon;
          widget.title.closable = true;
          void tracker.add(widget);
          app.shell.add(widget, 'main');
        }
        app.shell.activateById(ID);
        return widget;
      }
    });
    void restorer?.restore(tracker, {
      command: CommandIDs.runs,
      name: () => ID
    });
    addComparisons(app, model, restorer);
  }
};

/** Add the command that compares runs; the same runs are compared once. */
function addComparisons(
  app: JupyterFrontEnd,
  model: IClusterModel,
  restorer: ILayoutRestorer | null
): void {
  const namespace = 'mntrain-compare';
  const tracker = new WidgetTracker<MainAreaWidget<CompareWidget>>({
    namespace
  });
  app.commands.addCommand(CommandIDs.compare, {
    label: trans.__('Compare runs'),
    icon: mntrainIcon,
    isVisible: () => false, // the list of runs gives it the runs
    describedBy: describe({
      jobIds: ['strings', 'A job of each of two to four runs.']
    }),
    execute: ({ jobIds }) => {
      const given = (jobIds as string[] | undefined) ?? [];
      const chosen = given.slice(0, LETTERS.length);
      const id = [namespace, ...chosen].join('-');
      let widget = tracker.find(one => one.id === id);
      if (!widget) {
        const content = new CompareWidget(new Comparison(model, chosen));
        widget = new MainAreaWidget({ content });
        widget.id = id;
        widget.title.label = trans.__('Compare %1 runs', chosen.length);
        widget.title.icon = mntrainIcon;
        widget.title.closable = true;
        void tracker.add(widget);
        app.shell.add(widget, 'main');
      }
      app.shell.activateById(id);
      return widget;
    }
  });
  void restorer?.restore(tracker, {
    command: CommandIDs.compare,
    args: widget => ({ jobIds: [...widget.content.comparison.jobIds] }),
    name: widget => widget.id
  });
}
