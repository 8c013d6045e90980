/** Live view widgets: in an output, and as a tab. */

import { ReactWidget } from '@jupyterlab/apputils';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import type { CommandRegistry } from '@lumino/commands';
import { type Message, MessageLoop } from '@lumino/messaging';
import { Panel, Widget } from '@lumino/widgets';
import * as React from 'react';

import { problemText } from '../problem';
import type { IClusterModel } from '../tokens';
import { checkBundle, JOB_MIME } from './bundle';
import { LiveController } from './controller';
import { LiveView } from './view';
import { trans } from '../trans';

export interface IServices {
  model: IClusterModel | null;
  commands: CommandRegistry | null;
  /** Maximum number of redraws per second. */
  hertz: () => number;
}

export class LiveWidget extends ReactWidget {
  constructor(
    readonly controller: LiveController,
    private services: IServices,
    private isTab: boolean
  ) {
    super();
    this.addClass('mnt-live-widget');
  }

  protected render(): JSX.Element {
    const { commands, model } = this.services;
    return (
      <LiveView
        controller={this.controller}
        commands={commands}
        model={model}
        isTab={this.isTab}
      />
    );
  }

  dispose(): void {
    this.controller.dispose();
    super.dispose();
  }
}

/** The live view of a job as a tab. */
export function liveTab(jobId: string, services: IServices): LiveWidget {
  const { model, hertz } = services;
  const controller = new LiveController(jobId, model, hertz());
  return new LiveWidget(controller, services, true);
}

/** Renders a job saved in a notebook, live if the server knows it. */
export class JobRenderer extends Panel implements IRenderMime.IRenderer {
  constructor(private services: IServices) {
    super();
    this.addClass('mnt-output');
  }

  async renderModel(mime: IRenderMime.IMimeModel): Promise<void> {
    const checked = checkBundle(mime.data[JOB_MIME]);
    if (!checked.bundle) {
      this.say(checked.problem);
      return;
    }
    const { bundle } = checked;
    if (this.live && this.live.controller.jobId !== bundle.job.job_id) {
      this.live.dispose();
      this.live = null;
    }
    if (!this.live) {
      this.widgets.slice().forEach(widget => widget.dispose());
      const { model, hertz } = this.services;
      const controller = new LiveController(bundle.job.job_id, model, hertz());
      this.live = new LiveWidget(controller, this.services, false);
      this.addWidget(this.live);
    }
    this.live.controller.takeBundle(bundle);
  }

  private say(problem: 'newer' | 'damaged'): void {
    this.widgets.slice().forEach(widget => widget.dispose());
    this.live = null;
    const line = new Widget({ node: document.createElement('p') });
    line.addClass('mnt-still');
    line.node.textContent = problemText(
      problem === 'newer'
        ? {
            cause: trans.__(
              'This output was written by a newer jupyter_mntrain'
            ),
            fix: trans.__(
              'upgrade jupyter_mntrain on the Jupyter server, then reload the page'
            )
          }
        : { cause: trans.__('This output is not a readable job') }
    );
    this.addWidget(line);
  }

  protected onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.live) {
      MessageLoop.sendMessage(this.live, Widget.ResizeMessage.UnknownSize);
    }
  }

  private live: LiveWidget | null = null;
}
