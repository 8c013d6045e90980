/** "Run…" in the file browser: opens the submit panel for a recipe or a script. */

import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { PathExt } from '@jupyterlab/coreutils';
import { type FileBrowser, IFileBrowserFactory } from '@jupyterlab/filebrowser';
import { INotebookTracker } from '@jupyterlab/notebook';
import type { Contents } from '@jupyterlab/services';
import { ITranslator } from '@jupyterlab/translation';

import { cellForPanel } from '../cells';
import { mntrainIcon } from '../icons';
import { isRecipe, isScript, mayBeRecipe } from '../recipe';
import { LARGEST_RECIPE_BYTES } from '../schema';
import { CommandIDs, IClusterModel } from '../tokens';
import { trans, useLanguage } from '../trans';
import { describe } from './commands/context';
import { insertCell } from './notebooks';

/** Maximum number of .toml files that are read in a folder. */
const MOST_FILES = 100;

/** Below "Open" and its kind, above "Rename". */
const RANK = 4;

export const filesPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-mntrain:files',
  description: 'Opens the submit panel from the file browser.',
  autoStart: true,
  requires: [IFileBrowserFactory, INotebookTracker, IClusterModel],
  optional: [ITranslator],
  activate: (
    app: JupyterFrontEnd,
    factory: IFileBrowserFactory,
    notebooks: INotebookTracker,
    model: IClusterModel,
    translator: ITranslator | null
  ) => {
    useLanguage(translator);
    const { contents } = app.serviceManager;
    const recipes = new Recipes(contents);
    const watch = (browser: FileBrowser) => {
      const look = () => void recipes.look([...browser.model.items()]);
      browser.model.refreshed.connect(look);
      look();
    };
    factory.tracker.forEach(watch);
    factory.tracker.widgetAdded.connect((_, browser) => watch(browser));
    const selected = () => [
      ...(factory.tracker.currentWidget?.selectedItems() ?? [])
    ];
    app.commands.addCommand(CommandIDs.openPanel, {
      label: trans.__('Run…'),
      caption: trans.__('Choose nodes for this file, check, launch'),
      icon: mntrainIcon,
      describedBy: describe({
        path: ['string', 'A recipe or a script; default: the selected file.']
      }),
      isVisible: ({ path }) => {
        const items = selected();
        return (
          path !== undefined || (items.length === 1 && recipes.fits(items[0]))
        );
      },
      execute: async ({ path }) => {
        const given = path === undefined ? selected()[0]?.path : String(path);
        if (given !== undefined) {
          const file = contents.localPath(given);
          await insertCell(
            app,
            notebooks,
            model,
            book => panelFor(file, book),
            { runs: true, folder: PathExt.dirname(given) }
          );
        }
      }
    });
    app.contextMenu.addItem({
      command: CommandIDs.openPanel,
      selector: '.jp-DirListing-item[data-isdir="false"]',
      rank: RANK
    });
  }
};

/** A kernel works in the folder of its notebook. */
const panelFor = (file: string, notebook: string) =>
  cellForPanel(PathExt.relative(PathExt.dirname(notebook), file));

/** Which .toml files are recipes: read as they are listed, since a menu opens at once. */
class Recipes {
  constructor(private contents: Contents.IManager) {}

  fits({ type, name, path }: Contents.IModel): boolean {
    return (
      type !== 'directory' &&
      (isScript(name) || (this.known.get(path)?.isRecipe ?? false))
    );
  }

  async look(items: ReadonlyArray<Contents.IModel>): Promise<void> {
    const unknown = items.filter(
      ({ name, path, size, last_modified }) =>
        mayBeRecipe(name) &&
        (size ?? 0) <= LARGEST_RECIPE_BYTES &&
        this.known.get(path)?.changed !== last_modified
    );
    for (const { path, last_modified } of unknown.slice(0, MOST_FILES)) {
      this.known.set(path, { changed: last_modified, isRecipe: false });
      const isOurs = await this.read(path);
      this.known.set(path, { changed: last_modified, isRecipe: isOurs });
    }
  }

  private async read(path: string): Promise<boolean> {
    try {
      const { content } = await this.contents.get(path, {
        type: 'file',
        format: 'text',
        content: true
      });
      return isRecipe(String(content));
    } catch {
      // Gone, or no text: nothing to launch.
      return false;
    }
  }

  private known = new Map<string, { changed: string; isRecipe: boolean }>();
}
