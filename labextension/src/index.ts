/** The extension's plugins; each can be disabled by its id. */

import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { benchPlugin } from './plugins/bench';
import { commandsPlugin } from './plugins/commands/plugin';
import { doctorPlugin } from './plugins/doctor';
import { filesPlugin } from './plugins/files';
import { historyPlugin } from './plugins/history';
import { kernelPlugin } from './plugins/kernel';
import { liveviewPlugin } from './plugins/liveview';
import { logsPlugin } from './plugins/logs';
import { modelPlugin } from './plugins/model';
import { noticesPlugin } from './plugins/notices';
import { runsPlugin } from './plugins/runs';
import { savingPlugin } from './plugins/saving';
import { sidebarPlugin } from './plugins/sidebar';
import { jobFilesPlugin } from './plugins/job_files';
import { stacksPlugin } from './plugins/stacks';
import { statusPlugin } from './plugins/status';

export * from './tokens';

const plugins: JupyterFrontEndPlugin<any>[] = [
  modelPlugin,
  sidebarPlugin,
  commandsPlugin,
  logsPlugin,
  jobFilesPlugin,
  stacksPlugin,
  historyPlugin,
  doctorPlugin,
  benchPlugin,
  statusPlugin,
  noticesPlugin,
  liveviewPlugin,
  runsPlugin,
  savingPlugin,
  kernelPlugin,
  filesPlugin
];

export default plugins;
