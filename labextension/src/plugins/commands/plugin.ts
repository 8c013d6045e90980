/** Commands for nodes and jobs, for palette, menus and buttons. */

import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IMainMenu } from '@jupyterlab/mainmenu';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import { CommandIDs, IClusterModel } from '../../tokens';
import { setting } from '../setting';
import { addCellCommands } from './cells';
import { addJobCommands } from './jobs';
import { addNodeCommands } from './nodes';
import { trans, useLanguage } from '../../trans';

const PLUGIN = 'jupyter-mntrain:commands';

/** Commands of the palette, in order. */
const LISTED = [
  CommandIDs.show,
  CommandIDs.launch,
  CommandIDs.attach,
  CommandIDs.logs,
  CommandIDs.stacks,
  CommandIDs.save,
  CommandIDs.stop,
  CommandIDs.kill,
  CommandIDs.resume,
  CommandIDs.launchAgain,
  CommandIDs.checkpoints,
  CommandIDs.copySpec,
  CommandIDs.insertCell,
  CommandIDs.inviteNodes,
  CommandIDs.addNode,
  CommandIDs.measureLinks
];

export const commandsPlugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'Commands for nodes and jobs.',
  autoStart: true,
  requires: [IClusterModel],
  optional: [
    ITranslator,
    ICommandPalette,
    IMainMenu,
    INotebookTracker,
    ISettingRegistry
  ],
  activate: (
    app: JupyterFrontEnd,
    model: IClusterModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    menu: IMainMenu | null,
    notebooks: INotebookTracker | null,
    settings: ISettingRegistry | null
  ) => {
    useLanguage(translator);
    const { commands } = app;
    const confirms = setting(settings, PLUGIN, 'confirm', true);
    addCellCommands(app, model, notebooks);
    addJobCommands({ commands, model }, confirms);
    addNodeCommands({ commands, model });

    const category = trans.__('Multi-node training');
    for (const command of LISTED) {
      palette?.addItem({ command, category });
    }
    const args = { andStop: true };
    palette?.addItem({ command: CommandIDs.save, category, args });
    menu?.viewMenu.addGroup([{ command: CommandIDs.show }], 30);
  }
};
