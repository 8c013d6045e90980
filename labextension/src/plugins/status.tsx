/** Status bar item: nodes up, jobs running, and the progress of a single job. */

import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ReactWidget, UseSignal } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import * as React from 'react';

import { percent } from '../formats';
import { Icon } from '../icons';
import { CommandIDs, IClusterModel } from '../tokens';
import { OVER, progressOf } from '../words';
import { setting } from './setting';
import { trans, useLanguage } from '../trans';

const PLUGIN = 'jupyter-mntrain:status';

export function statusLine(model: IClusterModel): string {
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

function Status(props: {
  model: IClusterModel;
  open: () => void;
}): JSX.Element {
  const { model, open } = props;
  const isWell = model.nodes.every(node => node.view.liveness === 'up');
  return (
    <button
      className="mnt mnt-status jp-StatusBar-TextItem"
      title={trans.__('Multi-node training')}
      onClick={open}
    >
      {!isWell && <Icon name="suspect" size={12} />} {statusLine(model)}
    </button>
  );
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
    useLanguage(translator);
    const open = () => void app.commands.execute(CommandIDs.show);
    const activeStateChanged = new Signal<IClusterModel, void>(model);
    const isWanted = setting(settings, PLUGIN, 'show', true, () => tell());
    const isActive = () =>
      isWanted() && model.connection === 'live' && model.nodes.length > 0;
    let wasActive = false;
    const tell = () => {
      if (isActive() !== wasActive) {
        wasActive = !wasActive;
        activeStateChanged.emit();
      }
    };
    model.changed.connect(tell);
    const item = ReactWidget.create(
      <UseSignal signal={model.changed}>
        {() => <Status model={model} open={open} />}
      </UseSignal>
    );
    statusBar.registerStatusItem(PLUGIN, {
      item,
      align: 'left',
      rank: 50,
      isActive,
      activeStateChanged
    });
  }
};
