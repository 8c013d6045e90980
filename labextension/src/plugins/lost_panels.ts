/** Lost panels: a submit panel whose kernel is gone is a sentence, and a button that opens it again. */

import type { NotebookPanel } from '@jupyterlab/notebook';

import { trans } from '../trans';

/** Key in the data of an output that is a panel; the kernel writes the same. */
export const PANEL_MIME = 'application/vnd.mntrain.panel+json';

const WIDGET_MIME = 'application/vnd.jupyter.widget-view+json';

/** Target of the comms that ipywidgets opens, one for each widget. */
const COMMS = 'jupyter.widget';

const OUTPUT_ITEM = '.jp-OutputArea-child';

/** Kernel states in which widgets are lost. */
const ENDED = new Set(['restarting', 'autorestarting', 'terminating', 'dead']);

export type Cell = NotebookPanel['content']['widgets'][number];

/** An output as the notebook keeps it. */
export interface IOutput {
  output_type: string;
  [key: string]: any;
}

/** A code cell, with what is of use here. */
export type CodeCell = Cell & {
  outputArea: {
    model: {
      length: number;
      get(index: number): { data: Record<string, any>; trusted: boolean };
      toJSON(): IOutput[];
      add(output: IOutput): number;
    };
    widgets: ReadonlyArray<{ node: HTMLElement }>;
  };
};

/** A panel in an output: its cell, its place on the page, and the id of its widget. */
interface IDrawn {
  cell: CodeCell;
  place: HTMLElement;
  id: string;
}

type Notebook = Pick<NotebookPanel, 'content' | 'sessionContext' | 'disposed'>;

/** Finds the lost panels of a notebook while it is open. */
export class LostPanels {
  /**
   * @param panel the notebook.
   * @param open runs a panel's cell; resolves when it has run.
   */
  constructor(
    private panel: Notebook,
    private open: (cell: CodeCell) => Promise<unknown>
  ) {
    const { sessionContext } = panel;
    sessionContext.statusChanged.connect(this.hear, this);
    sessionContext.kernelChanged.connect(this.doubt, this);
    // The kernel may have been restarted while this page was asleep.
    sessionContext.connectionStatusChanged.connect(this.doubt, this);
    const observer = new MutationObserver(changes => {
      if (changes.some(bringsOutput)) {
        this.look();
      }
    });
    observer.observe(panel.content.node, { subtree: true, childList: true });
    panel.disposed.connect(() => observer.disconnect());
    this.look();
  }

  private hear(): void {
    if (ENDED.has(this.panel.sessionContext.session?.kernel?.status ?? '')) {
      this.lose(this.drawn());
    }
  }

  private doubt(): void {
    this.alive.clear();
    this.look();
  }

  private look(): void {
    const drawn = this.drawn();
    for (const one of drawn) {
      // Until it is known, the message of ipywidgets is not shown either.
      one.place.classList.toggle('mnt-unknown', this.isUnknown(one));
      if (this.lost.has(one.id)) {
        this.replace(one);
      }
    }
    if (drawn.some(one => this.isUnknown(one))) {
      void this.ask();
    }
  }

  /** A widget lives as long as its comm in the kernel: whoever draws it, and from whatever state. */
  private async ask(): Promise<void> {
    if (this.isAsking) {
      return;
    }
    this.isAsking = true;
    const { sessionContext } = this.panel;
    try {
      await sessionContext.ready;
      const asked = this.drawn().filter(one => this.isUnknown(one));
      const kernel = sessionContext.session?.kernel;
      const reply = await kernel?.requestCommInfo({ target_name: COMMS });
      const comms = reply?.content.status === 'ok' ? reply.content.comms : {};
      for (const { id } of asked.filter(one => one.id in comms)) {
        this.alive.add(id);
      }
      this.lose(asked.filter(one => !(one.id in comms)));
    } catch {
      // The kernel went away meanwhile: whatever comes next is asked again.
      return;
    } finally {
      this.isAsking = false;
    }
    this.look();
  }

  private lose(drawn: IDrawn[]): void {
    for (const one of drawn) {
      this.lost.add(one.id);
      this.replace(one);
    }
  }

  private replace({ cell, place }: IDrawn): void {
    if (!place.classList.contains('mnt-lost')) {
      place.classList.add('mnt-lost');
      place.append(lostNote(() => this.open(cell)));
    }
  }

  private isUnknown({ id }: IDrawn): boolean {
    return !this.alive.has(id) && !this.lost.has(id);
  }

  private drawn(): IDrawn[] {
    const found: IDrawn[] = [];
    for (const one of this.panel.content.widgets) {
      if (one.model.type === 'code') {
        found.push(...drawnIn(one as CodeCell));
      }
    }
    return found;
  }

  private alive = new Set<string>();
  private lost = new Set<string>();
  private isAsking = false;
}

function drawnIn(cell: CodeCell): IDrawn[] {
  const { model, widgets } = cell.outputArea;
  const found: IDrawn[] = [];
  widgets.slice(0, model.length).forEach(({ node }, index) => {
    const { data, trusted } = model.get(index);
    // A cell that somebody else wrote is not run by a button.
    if (trusted && PANEL_MIME in data && data[WIDGET_MIME]) {
      found.push({ cell, place: node, id: String(data[WIDGET_MIME].model_id) });
    }
  });
  return found;
}

function bringsOutput({ addedNodes }: MutationRecord): boolean {
  return [...addedNodes].some(
    node =>
      node instanceof Element &&
      (node.matches(OUTPUT_ITEM) || node.querySelector(OUTPUT_ITEM) !== null)
  );
}

function lostNote(open: () => Promise<unknown>): HTMLElement {
  const note = document.createElement('div');
  note.className = 'mnt mnt-lost-panel jp-OutputArea-output';
  const words = document.createElement('span');
  words.setAttribute('role', 'status');
  words.textContent = trans.__(
    'This panel ended with its kernel; jobs do not depend on it.'
  );
  const button = document.createElement('button');
  button.className = 'btn';
  button.textContent = trans.__('Open it again');
  button.addEventListener('click', () => {
    if (button.getAttribute('aria-disabled') !== 'true') {
      button.setAttribute('aria-disabled', 'true');
      void open().finally(() => button.removeAttribute('aria-disabled'));
    }
  });
  note.append(words, button);
  return note;
}
