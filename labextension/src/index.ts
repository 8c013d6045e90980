/** Several small plugins; each can be disabled by its id. */

import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { liveviewPlugin } from './plugins/liveview';
import { modelPlugin } from './plugins/model';

const plugins: JupyterFrontEndPlugin<any>[] = [modelPlugin, liveviewPlugin];

export default plugins;
