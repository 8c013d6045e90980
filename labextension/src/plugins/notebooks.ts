/** Inserts cells into notebooks, or drags them there. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import {
  type INotebookTracker,
  NotebookActions,
  type NotebookPanel
} from '@jupyterlab/notebook';
import { MimeData } from '@lumino/coreutils';
import { Drag } from '@lumino/dragdrop';

import { LOAD } from '../cells';
import { JOB_MIME } from '../liveview/bundle';
import type { Cell, CodeCell, IOutput } from './lost_panels';

const CELLS = 'application/vnd.jupyter.cells';

/** A press becomes a drag after this many pixels. */
const THRESHOLD = 5;

/** Source of a cell, which may depend on the path of its notebook. */
export type Source = string | ((notebook: string) => string);

interface IOptions {
  /** Whether to run the cell once the kernel is ready. */
  runs?: boolean;
  /** Folder of a new notebook; default: the one that the file browser shows. */
  folder?: string;
}

/** Insert a cell below the active one, or into a new notebook if none is open. */
export async function insertCell(
  app: JupyterFrontEnd,
  tracker: INotebookTracker | null,
  given: Source,
  { runs = false, folder }: IOptions = {}
): Promise<void> {
  const panel = tracker?.currentWidget ?? (await newNotebook(app, folder));
  if (!panel) {
    return;
  }
  const { content } = panel;
  await panel.context.ready;
  const text =
    typeof given === 'string' ? given : given(panel.context.localPath);
  const active = content.activeCell;
  if (active && active.model.sharedModel.getSource().trim() !== '') {
    NotebookActions.insertBelow(content);
  }
  const source = (await isLoaded(panel)) ? text.replace(`${LOAD}\n`, '') : text;
  content.activeCell?.model.sharedModel.setSource(source);
  app.shell.activateById(panel.id);
  if (runs) {
    await panel.sessionContext.ready;
    await NotebookActions.run(content, panel.sessionContext);
  }
}

/** Run the cell of a panel in a kernel that may be new; jobs that the cell shows stay below it. */
export async function runPanelAgain(
  panel: NotebookPanel,
  cell: CodeCell
): Promise<void> {
  const { content, sessionContext } = panel;
  const source = sourceOf(cell);
  const cells: Cell[] = [cell];
  if (!source.includes(LOAD) && !(await isLoaded(panel))) {
    const loads = (one: Cell) =>
      one.model.type === 'code' && sourceOf(one).trim() === LOAD;
    const load = content.widgets.find(loads);
    if (load) {
      cells.unshift(load);
    } else {
      cell.model.sharedModel.setSource(`${LOAD}\n${source}`);
    }
  }
  const { model } = cell.outputArea;
  const isJob = ({ data }: IOutput) =>
    JOB_MIME in ((data as object | undefined) ?? {});
  const jobs = model.toJSON().filter(isJob);
  await NotebookActions.runCells(content, cells, sessionContext);
  jobs.forEach(job => model.add(job));
}

const sourceOf = (cell: Cell) => cell.model.sharedModel.getSource();

/** Whether the kernel says that it has our extension; a busy one is not asked. */
async function isLoaded({ sessionContext }: NotebookPanel): Promise<boolean> {
  const kernel = sessionContext.session?.kernel;
  if (kernel?.status !== 'idle') {
    return false;
  }
  const loaded = "'jupyter_mntrain' in get_ipython().extension_manager.loaded";
  const reply = await kernel.requestExecute({
    code: '',
    silent: true,
    store_history: false,
    user_expressions: { loaded }
  }).done;
  if (reply.content.status !== 'ok') {
    return false;
  }
  const said = reply.content.user_expressions?.loaded as
    { data?: Record<string, string> } | undefined;
  return said?.data?.['text/plain'] === 'True';
}

async function newNotebook(
  app: JupyterFrontEnd,
  cwd?: string
): Promise<NotebookPanel | null> {
  if (!app.commands.hasCommand('notebook:create-new')) {
    return null;
  }
  return app.commands.execute('notebook:create-new', {
    kernelName: 'python3',
    ...(cwd === undefined ? {} : { cwd })
  });
}

/** Start dragging a row as a cell once the pointer has moved far enough. */
export function dragCell(event: MouseEvent, label: string, text: string): void {
  if (event.button !== 0) {
    return;
  }
  const { clientX, clientY } = event;
  const stop = () => {
    document.removeEventListener('mousemove', move, true);
    document.removeEventListener('mouseup', stop, true);
  };
  const move = (moved: MouseEvent) => {
    const [x, y] = [moved.clientX - clientX, moved.clientY - clientY];
    if (Math.hypot(x, y) < THRESHOLD) {
      return;
    }
    stop();
    const image = document.createElement('div');
    image.className = 'mnt mnt-dragged';
    image.textContent = label;
    const mimeData = new MimeData();
    mimeData.setData(CELLS, [
      {
        cell_type: 'code',
        source: text,
        metadata: {},
        outputs: [],
        execution_count: null
      }
    ]);
    mimeData.setData('text/plain', text);
    const drag = new Drag({
      mimeData,
      dragImage: image,
      proposedAction: 'copy',
      supportedActions: 'copy',
      source: null
    });
    void drag.start(moved.clientX, moved.clientY).then(() => drag.dispose());
  };
  document.addEventListener('mousemove', move, true);
  document.addEventListener('mouseup', stop, true);
}
