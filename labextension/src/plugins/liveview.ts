/** Live view plugin: draws jobs in notebook outputs, and in tabs that survive a reload. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { mntrainIcon } from '../icons';
import { JOB_MIME } from '../liveview/bundle';
import { LiveController } from '../liveview/controller';
import { type IServices, JobRenderer, LiveWidget } from '../liveview/widget';
import { CommandIDs, IClusterModel } from '../tokens';
import { describe } from './commands/context';
import { setting } from './setting';

const PLUGIN = 'jupyter-mntrain:liveview';

export const liveviewPlugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'Live views of jobs, in outputs and as tabs.',
  autoStart: true,
  requires: [IRenderMimeRegistry],
  optional: [IClusterModel, ITranslator, ILayoutRestorer, ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    rendermime: IRenderMimeRegistry,
    model: IClusterModel | null,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    settings: ISettingRegistry | null
  ) => {
    const trans = (translator ?? nullTranslator).load('jupyter_mntrain');
    const hertz = setting(settings, PLUGIN, 'hertz', 1);
    const services: IServices = {
      model,
      commands: app.commands,
      trans,
      hertz
    };
    rendermime.addFactory(
      {
        safe: true,
        mimeTypes: [JOB_MIME],
        defaultRank: 20,
        createRenderer: () => new JobRenderer(services)
      },
      20
    );

    addAttach(app, services, restorer);
  }
};

/** Add the command that opens a live view as a tab, and restore tabs after a reload. */
function addAttach(
  app: JupyterFrontEnd,
  services: IServices,
  restorer: ILayoutRestorer | null
): void {
  const { model, trans } = services;
  const tracker = new WidgetTracker<MainAreaWidget<LiveWidget>>({
    namespace: 'mntrain-live'
  });
  app.commands.addCommand(CommandIDs.attach, {
    label: args =>
      args.jobId
        ? trans.__('Open the live view of %1', String(args.jobId))
        : trans.__('Open the live view of the newest job'),
    caption: trans.__('A job’s charts as a tab'),
    icon: mntrainIcon,
    isEnabled: () => model !== null,
    describedBy: describe({
      jobId: ['string', 'The job; default: the newest.']
    }),
    execute: args => {
      const jobId = String(args.jobId ?? model?.jobs[0]?.job_id ?? '');
      if (!jobId) {
        return;
      }
      const open = tracker.find(
        widget => widget.content.controller.jobId === jobId
      );
      const widget = open ?? makeTab(jobId, services);
      if (!open) {
        void tracker.add(widget);
        app.shell.add(widget, 'main');
      }
      app.shell.activateById(widget.id);
      return widget;
    }
  });
  void restorer?.restore(tracker, {
    command: CommandIDs.attach,
    args: widget => ({ jobId: widget.content.controller.jobId }),
    name: widget => widget.content.controller.jobId
  });
}

function makeTab(
  jobId: string,
  services: IServices
): MainAreaWidget<LiveWidget> {
  const controller = new LiveController(
    jobId,
    services.model,
    services.hertz()
  );
  const content = new LiveWidget(controller, services, true);
  const widget = new MainAreaWidget({ content });
  widget.id = `mntrain-live-${jobId}`;
  widget.title.icon = mntrainIcon;
  widget.title.closable = true;
  const name = () => {
    widget.title.label = controller.job?.name ?? jobId;
    widget.title.caption = jobId;
  };
  controller.changed.connect(name);
  name();
  return widget;
}
