/** Sidebar plugin, and the command that shows it, the only way in Notebook 7. */

import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import { mntrainIcon } from '../icons';
import { type LineChoice, Sidebar } from '../sidebar/panel';
import { CommandIDs, IClusterModel } from '../tokens';
import { describe } from './commands/context';
import { dragCell, insertCell } from './notebooks';
import { setting } from './setting';
import { trans, useLanguage } from '../trans';

const PLUGIN = 'jupyter-mntrain:sidebar';

export const sidebarPlugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'Sidebar with nodes, links and jobs.',
  autoStart: true,
  requires: [IClusterModel],
  optional: [
    ITranslator,
    ILayoutRestorer,
    INotebookTracker,
    ISettingRegistry,
    ILabShell
  ],
  activate: (
    app: JupyterFrontEnd,
    model: IClusterModel,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    notebooks: INotebookTracker | null,
    settings: ISettingRegistry | null,
    labShell: ILabShell | null
  ) => {
    useLanguage(translator);
    const sidebar = new Sidebar({
      model,
      commands: app.commands,
      insert: text => void insertCell(app, notebooks, model, text),
      drag: (event, label, text) => dragCell(event.nativeEvent, label, text)
    });
    // In Notebook 7 only notebooks have a left area, not the file list.
    let area = 'left';
    const place = () => app.shell.add(sidebar, area, { rank: 350 });
    place();
    restorer?.add(sidebar, sidebar.id);
    setting(settings, PLUGIN, 'area', area, wanted => {
      if (wanted !== area && labShell) {
        area = wanted;
        place();
      }
    });
    setting<LineChoice>(settings, PLUGIN, 'lines', 'auto', choice => {
      sidebar.lines = choice;
    });
    app.commands.addCommand(CommandIDs.show, {
      label: trans.__('Multi-node training'),
      caption: trans.__('Nodes, links and jobs'),
      icon: mntrainIcon,
      describedBy: describe(),
      execute: () => {
        app.shell.activateById(sidebar.id);
      }
    });
  }
};
