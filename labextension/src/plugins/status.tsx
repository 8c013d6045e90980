/** Status bar item: nodes up, jobs running, and the progress of a single job. */

import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ReactWidget, UseSignal } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import {
  ITranslator,
  nullTranslator,
  type TranslationBundle
} from '@jupyterlab/translation';
import { type ISignal, Signal } from '@lumino/signaling';
import * as React from 'react';

import { percent } from '../formats';
import { Icon } from '../icons';
import { CommandIDs, IClusterModel } from '../tokens';
import { OVER, progressOf } from '../words';
import { setting } from './setting';

const PLUGIN = 'jupyter-mntrain:status';

export function statusLine(
  model: IClusterModel,
  trans: TranslationBundle
): string {
  const up = model.nodes.filter(node => node.view.liveness === 'up').length;
  const all = model.nodes.length;
  const nodes =
    up === all
      ? trans._n('%1 node', '%1 nodes', all)
      : trans.__('%1 of %2 nodes', up, all);
  const running = model.jobs.filter(job => !OVER.has(job.state));
  if (running.length === 0) {
    return nodes;
  }
  const share = running.length === 1 ? progressOf(running[0]) : null;
  const jobs = trans._n('%1 job', '%1 jobs', running.length);
  return `${nodes} · ${jobs}${share === null ? '' : ` ${percent(share, 0)}`}`;
}

class StatusItem extends ReactWidget {
  constructor(
    private model: IClusterModel,
    private open: () => void,
    private trans: TranslationBundle
  ) {
    super();
    model.changed.connect(this.onChange, this);
  }

  /** Whether it is shown. */
  get isActive(): boolean {
    return (
      this.isWanted &&
      this.model.connection === 'live' &&
      this.model.nodes.length > 0
    );
  }

  get activeChanged(): ISignal<this, void> {
    return this.signal;
  }

  set wanted(value: boolean) {
    this.isWanted = value;
    this.onChange();
  }

  protected render(): JSX.Element {
    const { model, trans } = this;
    return (
      <UseSignal signal={model.changed}>
        {() => {
          const isWell = model.nodes.every(node => node.view.liveness === 'up');
          return (
            <button
              className="mnt mnt-status jp-StatusBar-TextItem"
              title={trans.__('Multi-node training')}
              onClick={this.open}
            >
              {!isWell && <Icon name="suspect" size={12} />}{' '}
              {statusLine(model, trans)}
            </button>
          );
        }}
      </UseSignal>
    );
  }

  private onChange(): void {
    if (this.isActive !== this.wasActive) {
      this.wasActive = this.isActive;
      this.signal.emit();
    }
  }

  private signal = new Signal<this, void>(this);
  private isWanted = true;
  private wasActive = false;
}

export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'Nodes and jobs in the status bar.',
  autoStart: true,
  requires: [IClusterModel],
  optional: [IStatusBar, ITranslator, ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    model: IClusterModel,
    statusBar: IStatusBar | null,
    translator: ITranslator | null,
    settings: ISettingRegistry | null
  ) => {
    if (!statusBar) {
      return;
    }
    const trans = (translator ?? nullTranslator).load('jupyter_mntrain');
    const item = new StatusItem(
      model,
      () => void app.commands.execute(CommandIDs.show),
      trans
    );
    statusBar.registerStatusItem(PLUGIN, {
      item,
      align: 'left',
      rank: 50,
      isActive: () => item.isActive,
      activeStateChanged: item.activeChanged
    });
    setting(settings, PLUGIN, 'show', true, wanted => {
      item.wanted = wanted;
    });
  }
};
