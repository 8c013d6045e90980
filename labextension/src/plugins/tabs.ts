/** Tabs of jobs: each is opened once, and is back after a reload of the page. */

import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import type { LabIcon } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { Widget } from '@lumino/widgets';

import type { IClusterModel } from '../tokens';
import { describe } from './commands/context';

/** What a tab shows of a job. */
export type TabArguments = { jobId: string; rank?: number };

/** A kind of tab, with the command that opens one. */
export interface ITabKind<Content extends Widget> {
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

/** Add the command that opens a tab; without a job it opens the newest one's. */
export function addTabs<Content extends Widget>(
  app: JupyterFrontEnd,
  model: IClusterModel | null,
  restorer: ILayoutRestorer | null,
  kind: ITabKind<Content>
): void {
  const { namespace, command } = kind;
  const tracker = new WidgetTracker<MainAreaWidget<Content>>({ namespace });
  const shown = new WeakMap<Widget, TabArguments>();
  app.commands.addCommand(command, {
    ...kind.options,
    icon: kind.icon,
    isEnabled: () => model !== null,
    describedBy: describe({
      jobId: ['string', 'The job; default: the newest.'],
      rank: ['number', 'Only this rank, of a log.']
    }),
    execute: given => {
      const args = argumentsOf(given, model);
      if (!args) {
        return;
      }
      const id = [namespace, ...Object.values(args)].join('-');
      let widget = tracker.find(one => one.id === id);
      if (!widget) {
        widget = newTab(kind, id, args);
        shown.set(widget, args);
        void tracker.add(widget);
        app.shell.add(widget, 'main', { mode: kind.mode });
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

/** What the command was given; null if there is no job. */
function argumentsOf(
  given: ReadonlyPartialJSONObject,
  model: IClusterModel | null
): TabArguments | null {
  const jobId = String(given.jobId ?? model?.jobs[0]?.job_id ?? '');
  if (!jobId) {
    return null;
  }
  return typeof given.rank === 'number'
    ? { jobId, rank: given.rank }
    : { jobId };
}

function newTab<Content extends Widget>(
  kind: ITabKind<Content>,
  id: string,
  args: TabArguments
): MainAreaWidget<Content> {
  const content = kind.make(args);
  const widget = new MainAreaWidget({ content });
  widget.id = id;
  widget.title.icon = kind.icon;
  widget.title.closable = true;
  kind.entitle(widget.title, args, content);
  return widget;
}
