/** Live view plugin: draws jobs in notebook outputs, and in tabs that survive a reload. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import { mntrainIcon } from '../icons';
import { LazyWidget } from '../lazy';
import { JOB_MIME } from '../liveview/bundle';
import type { IServices, JobRenderer, LiveWidget } from '../liveview/widget';
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
        createRenderer: () => new JobOutput(services)
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
      make: async ({ jobId }) => {
        const { liveTab } = await import('../liveview/widget');
        return liveTab(jobId, services);
      },
      entitle: (title, { jobId }) => {
        title.label = model?.job(jobId)?.name ?? jobId;
        title.caption = jobId;
      },
      keepTitle: (title, { jobId }, { controller }: LiveWidget) => {
        const name = () => {
          const { job } = controller;
          const isOneOfMany = job && hasNamesake(job, model?.jobs ?? []);
          title.label = isOneOfMany
            ? `${job.name} ${jobId}`
            : (job?.name ?? jobId);
        };
        controller.changed.connect(name);
        name();
      }
    });
  }
};

/** A job in an output: drawn once what draws it is loaded, as the notebook has it by then. */
class JobOutput
  extends LazyWidget<JobRenderer>
  implements IRenderMime.IRenderer
{
  constructor(private services: IServices) {
    super();
  }

  async renderModel(mime: IRenderMime.IMimeModel): Promise<void> {
    this.mime = mime;
    await (this.content?.renderModel(mime) ?? this.load());
  }

  protected async make(): Promise<JobRenderer> {
    const { JobRenderer } = await import('../liveview/widget');
    const renderer = new JobRenderer(this.services);
    if (this.mime) {
      await renderer.renderModel(this.mime);
    }
    return renderer;
  }

  private mime: IRenderMime.IMimeModel | null = null;
}
