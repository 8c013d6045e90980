/** Several small plugins; each can be disabled by its id. */

import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

const plugins: JupyterFrontEndPlugin<any>[] = [];

export default plugins;
