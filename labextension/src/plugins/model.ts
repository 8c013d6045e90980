/** Provides the cluster model to all other plugins. */

import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';

import { ClusterModel } from '../model';
import { IClusterModel } from '../tokens';

export const modelPlugin: JupyterFrontEndPlugin<IClusterModel> = {
  id: 'jupyter-mntrain:model',
  description: 'Follows the cluster that the Jupyter server watches.',
  autoStart: true,
  provides: IClusterModel,
  activate: (app: JupyterFrontEnd): IClusterModel => {
    const model = new ClusterModel(app.serviceManager.serverSettings);
    void app.started.then(() => model.start());
    return model;
  }
};
