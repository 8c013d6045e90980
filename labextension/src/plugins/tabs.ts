/** Tabs of jobs: each is opened once, and is back after a reload of the page. */

import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import type { LabIcon } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { Widget } from '@lumino/widgets';

import type { IClusterModel } from '../tokens';
import { describe } from './commands/context';

/** What a tab shows of a job. */
export type TabArguments = { jobId: string; rank?: number };

/** Add the command that opens a tab; without a job it opens the newest one's. */
export function addTabs<Content extends Widget>(
  app: JupyterFrontEnd,
  model: IClusterModel | null,
  restorer: ILayoutRestorer | null,
  tab: {
    namespace: string;
    command: string;
    options: Pick<CommandRegistry.ICommandOptions, 'label' | 'caption'>;
    icon: LabIcon;
    mode?: 'split-bottom';
    make: (args: TabArguments) => Content;
    /** Keep the title of a new tab. */
    entitle: (
      title: Widget['title'],
      args: TabArguments,
      content: Content
    ) => void;
  }
): void {
  const { namespace, command } = tab;
  const tracker = new WidgetTracker<MainAreaWidget<Content>>({ namespace });
  const shown = new WeakMap<Widget, TabArguments>();
  app.commands.addCommand(command, {
    ...tab.options,
    icon: tab.icon,
    isEnabled: () => model !== null,
    describedBy: describe({
      jobId: ['string', 'The job; default: the newest.'],
      rank: ['number', 'Only this rank, of a log.']
    }),
    execute: given => {
      const jobId = String(given.jobId ?? model?.jobs[0]?.job_id ?? '');
      if (!jobId) {
        return;
      }
      const args: TabArguments =
        typeof given.rank === 'number'
          ? { jobId, rank: given.rank }
          : { jobId };
      const id = [namespace, ...Object.values(args)].join('-');
      let widget = tracker.find(one => one.id === id);
      if (!widget) {
        const content = tab.make(args);
        widget = new MainAreaWidget({ content });
        widget.id = id;
        widget.title.icon = tab.icon;
        widget.title.closable = true;
        tab.entitle(widget.title, args, content);
        shown.set(widget, args);
        void tracker.add(widget);
        app.shell.add(widget, 'main', { mode: tab.mode });
      }
      app.shell.activateById(id);
      return widget;
    }
  });
  void restorer?.restore(tracker, {
    command,
    args: widget => ({ ...shown.get(widget) }),
    name: widget => widget.id
  });
}
