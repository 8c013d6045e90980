/** Live view plugin: draws jobs in notebook outputs, and in tabs that survive a reload. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import { mntrainIcon } from '../icons';
import { JOB_MIME } from '../liveview/bundle';
import { LiveController } from '../liveview/controller';
import { type IServices, JobRenderer, LiveWidget } from '../liveview/widget';
import { CommandIDs, IClusterModel } from '../tokens';
import { setting } from './setting';
import { addTabs, jobArguments } from './tabs';
import { trans, useLanguage } from '../trans';
import { hasNamesake } from '../words';

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
    useLanguage(translator);
    const hertz = setting(settings, PLUGIN, 'hertz', 1);
    const services: IServices = {
      model,
      commands: app.commands,
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

    addTabs(app, restorer, {
      namespace: 'mntrain-live',
      command: CommandIDs.attach,
      options: {
        label: args =>
          args.jobId
            ? trans.__('Open the live view of %1', String(args.jobId))
            : trans.__('Open the live view of the newest job'),
        caption: trans.__('A job’s charts as a tab'),
        isEnabled: () => model !== null
      },
      icon: mntrainIcon,
      takes: jobArguments(model),
      make: ({ jobId }) => {
        const controller = new LiveController(jobId, model, hertz());
        return new LiveWidget(controller, services, true);
      },
      entitle: (title, { jobId }, { controller }) => {
        const name = () => {
          const { job } = controller;
          const isOneOfMany = job && hasNamesake(job, model?.jobs ?? []);
          title.label = isOneOfMany
            ? `${job.name} ${jobId}`
            : (job?.name ?? jobId);
          title.caption = jobId;
        };
        controller.changed.connect(name);
        name();
      }
    });
  }
};
