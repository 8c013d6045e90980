/** Commands for nodes and jobs, for palette, menus and buttons. */

import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { IMainMenu } from '@jupyterlab/mainmenu';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import { CommandIDs, IClusterModel } from '../../tokens';
import { setting } from '../setting';
import { addCellCommands } from './cells';
import { addJobCommands } from './jobs';
import { addNodeCommands } from './nodes';
import { addOwnMachineCommands } from './own_machine';
import { trans, useLanguage } from '../../trans';

const PLUGIN = 'jupyter-mntrain:commands';

/** Commands of the palette, in order. */
const LISTED = [
  CommandIDs.show,
  CommandIDs.runs,
  CommandIDs.launch,
  CommandIDs.attach,
  CommandIDs.logs,
  CommandIDs.files,
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
  CommandIDs.makeNode,
  CommandIDs.joinCluster,
  CommandIDs.installService,
  CommandIDs.doctor,
  CommandIDs.bench,
  CommandIDs.measureLinks,
  CommandIDs.nodeHistory
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
    ISettingRegistry,
    ILauncher
  ],
  activate: (
    app: JupyterFrontEnd,
    model: IClusterModel,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    menu: IMainMenu | null,
    notebooks: INotebookTracker | null,
    settings: ISettingRegistry | null,
    launcher: ILauncher | null
  ) => {
    useLanguage(translator);
    const { commands } = app;
    const confirms = setting(settings, PLUGIN, 'confirm', true);
    addCellCommands(app, model, notebooks);
    addJobCommands({ commands, model }, confirms);
    addNodeCommands({ commands, model });
    addOwnMachineCommands({ commands, model });

    const category = trans.__('Multi-node training');
    for (const command of LISTED) {
      palette?.addItem({ command, category });
    }
    const args = { andStop: true };
    palette?.addItem({ command: CommandIDs.save, category, args });
    for (const command of [
      CommandIDs.show,
      CommandIDs.runs,
      CommandIDs.doctor
    ]) {
      launcher?.add({ command, category: trans.__('Other') });
    }
    menu?.viewMenu.addGroup([{ command: CommandIDs.show }], 30);
  }
};
