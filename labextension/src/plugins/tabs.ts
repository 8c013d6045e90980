/** Tabs: each is opened once, and restored after a reload of the page. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ITranslator } from '@jupyterlab/translation';
import type { LabIcon } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { Widget } from '@lumino/widgets';

import { LazyWidget } from '../lazy';
import { IClusterModel } from '../tokens';
import { useLanguage } from '../trans';
import { describe } from './commands/context';

/** Options of a kind of tab. */
export interface ITabArguments<Args> {
  described: Parameters<typeof describe>[0];
  /** What the command was given; null if there is nothing to show. */
  read: (given: ReadonlyPartialJSONObject) => Args | null;
}

/** A kind of tab, with the command that opens one. */
export interface ITabKind<Args, Content extends Widget> {
  namespace: string;
  command: string;
  options: Pick<
    CommandRegistry.ICommandOptions,
    'label' | 'caption' | 'isEnabled' | 'isVisible'
  >;
  icon: LabIcon;
  mode?: 'split-bottom';
  takes: ITabArguments<Args>;
  /** Loads the part that draws it. */
  make: (args: Args) => Promise<Content>;
  /** The title of a new tab. */
  entitle: (title: Widget['title'], args: Args) => void;
  /** Keep the title of a tab in sync with its content. */
  keepTitle?: (title: Widget['title'], args: Args, content: Content) => void;
}

/** Adds a kind of tab. */
export type AddTabs = <
  Args extends ReadonlyPartialJSONObject,
  Content extends Widget
>(
  kind: ITabKind<Args, Content>
) => void;

/** A plugin that only adds kinds of tabs; `add` is called once the language is known. */
export function tabPlugin(
  name: string,
  description: string,
  addAll: (add: AddTabs, model: IClusterModel, app: JupyterFrontEnd) => void
): JupyterFrontEndPlugin<void> {
  return {
    id: `jupyter-mntrain:${name}`,
    description,
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
      addAll(kind => addTabs(app, restorer, kind), model, app);
    }
  };
}

/** Add the command that opens a tab. */
export function addTabs<
  Args extends ReadonlyPartialJSONObject,
  Content extends Widget
>(
  app: JupyterFrontEnd,
  restorer: ILayoutRestorer | null,
  kind: ITabKind<Args, Content>
): void {
  const { namespace, command } = kind;
  const tracker = new WidgetTracker<MainAreaWidget<Tab<Args, Content>>>({
    namespace
  });
  const shown = new WeakMap<Widget, Args>();
  app.commands.addCommand(command, {
    ...kind.options,
    icon: kind.icon,
    describedBy: describe(kind.takes.described),
    execute: given => {
      const args = kind.takes.read(given);
      if (!args) {
        return;
      }
      const id = [namespace, ...Object.values(args).flat()].join('-');
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

/** Arguments of a tab that shows a job; without one, the newest. */
export function jobArguments(
  model: IClusterModel | null
): ITabArguments<{ jobId: string; rank?: number }> {
  return {
    described: {
      jobId: ['string', 'The job; default: the newest.'],
      rank: ['number', 'Only this rank, of a log.']
    },
    read: given => {
      const jobId = String(given.jobId ?? model?.jobs[0]?.job_id ?? '');
      if (!jobId) {
        return null;
      }
      return typeof given.rank === 'number'
        ? { jobId, rank: given.rank }
        : { jobId };
    }
  };
}

/** A tab whose title appears at once, and its content once loaded. */
class Tab<Args, Content extends Widget> extends LazyWidget<Content> {
  constructor(
    private kind: ITabKind<Args, Content>,
    private args: Args
  ) {
    super();
    this.addClass('mnt-tab');
  }

  protected async make(): Promise<Content> {
    const { kind, args } = this;
    const content = await kind.make(args);
    kind.keepTitle?.(this.title, args, content);
    return content;
  }
}

function newTab<Args, Content extends Widget>(
  kind: ITabKind<Args, Content>,
  id: string,
  args: Args
): MainAreaWidget<Tab<Args, Content>> {
  const tab = new Tab(kind, args);
  const widget = new MainAreaWidget({ content: tab });
  widget.id = id;
  widget.title.icon = kind.icon;
  widget.title.closable = true;
  kind.entitle(widget.title, args);
  void tab.load();
  return widget;
}
