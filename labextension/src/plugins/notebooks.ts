/** Inserts cells into notebooks, or drags them there. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import {
  type INotebookTracker,
  NotebookActions,
  type NotebookPanel
} from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import { MimeData } from '@lumino/coreutils';
import { Drag } from '@lumino/dragdrop';

import { LOAD } from '../cells';
import { JOB_MIME } from '../liveview/bundle';
import { problemText } from '../problem';
import type { IClusterModel } from '../tokens';
import { trans } from '../trans';
import { request } from './commands/context';
import type { Cell, CodeCell, IOutput } from './lost_panels';

const CELLS = 'application/vnd.jupyter.cells';

const LOADED = "'jupyter_mntrain' in get_ipython().extension_manager.loaded";
const VERSION =
  "__import__('importlib.metadata', fromlist=['']).version('jupyter-mntrain')";

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

/**
 * Insert a cell below the active one, or into a new notebook if none is open. A kernel that lacks the
 * package does not run it: a notification has the line that installs it there.
 */
export async function insertCell(
  app: JupyterFrontEnd,
  tracker: INotebookTracker | null,
  model: IClusterModel,
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
  if (!runs) {
    void tellLacking(panel, model);
  } else if (!(await tellLacking(panel, model))) {
    await NotebookActions.run(content, panel.sessionContext);
  }
}

/** Whether the kernel lacks the package; notifies of that, and of another version, which works. */
async function tellLacking(
  panel: NotebookPanel,
  { api, status }: IClusterModel
): Promise<boolean> {
  await panel.sessionContext.ready;
  const found = await packageOf(panel);
  const ours = status?.version;
  if (!found || !ours || found.version === ours) {
    return false;
  }
  const { kernelDisplayName: kernel } = panel.sessionContext;
  const insert = async () => {
    const packed = await request(() => api.packWheel());
    if (packed) {
      const { content } = panel;
      NotebookActions.insertAbove(content);
      const line = `%pip install ${JSON.stringify(packed.path)}`;
      content.activeCell?.model.sharedModel.setSource(line);
    }
  };
  const problem = found.version
    ? {
        cause: trans.__(
          'The kernel %1 has jupyter_mntrain %2, the Jupyter server %3',
          kernel,
          found.version,
          ours
        ),
        fix: trans.__('install the same version in both')
      }
    : {
        cause: trans.__(
          'The kernel %1 does not have jupyter_mntrain, so this cell cannot run in it',
          kernel
        ),
        fix: trans.__('install it there, or choose another kernel')
      };
  Notification.warning(problemText(problem), {
    autoClose: false,
    actions: [
      {
        label: trans.__('Insert the line that installs it'),
        callback: () => void insert()
      }
    ]
  });
  return !found.version;
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
async function isLoaded(panel: NotebookPanel): Promise<boolean> {
  const kernel = panel.sessionContext.session?.kernel;
  const isIdle = kernel?.status === 'idle';
  return isIdle && (await evaluated(kernel, LOADED))?.text === 'True';
}

/** Which version of the package a kernel has, if any; `null` if it does not say, as one that is busy. */
export async function packageOf({
  sessionContext
}: Pick<NotebookPanel, 'sessionContext'>): Promise<{ version: string } | null> {
  const kernel = sessionContext.session?.kernel;
  const isPython = (await kernel?.info)?.language_info.name === 'python';
  if (!kernel || !isPython || kernel.status === 'busy') {
    return null;
  }
  const said = await evaluated(kernel, VERSION);
  if (said?.error === 'PackageNotFoundError') {
    return { version: '' };
  }
  const version = said?.text?.replace(/^'|'$/g, '');
  return version ? { version } : null;
}

/** Evaluate an expression in a kernel; return its text, or the name of the error. */
async function evaluated(
  kernel: Kernel.IKernelConnection,
  expression: string
): Promise<{ text?: string; error?: string } | null> {
  const reply = await kernel.requestExecute({
    code: '',
    silent: true,
    store_history: false,
    user_expressions: { expression }
  }).done;
  if (reply.content.status !== 'ok') {
    return null;
  }
  const said = reply.content.user_expressions?.expression as
    { data?: Record<string, string>; ename?: string } | undefined;
  return { text: said?.data?.['text/plain'], error: said?.ename };
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
