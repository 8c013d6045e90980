/** Lost panels: after its kernel has restarted, a submit panel is one sentence. */

import type { NotebookPanel } from '@jupyterlab/notebook';

import { LOAD } from '../cells';
import { trans } from '../trans';
import { PANEL } from './panels';

/** Replace the panels that are drawn in a notebook: nobody answers their clicks any longer. */
export function replaceLost(panel: NotebookPanel): void {
  for (const node of panel.content.node.querySelectorAll<HTMLElement>(PANEL)) {
    // The kernel's widgets are drawn as broken icons, each in a place of its own.
    const place = node.closest<HTMLElement>('.jp-OutputArea-output') ?? node;
    place.replaceChildren(lostNote());
  }
}

function lostNote(): HTMLElement {
  const note = document.createElement('p');
  note.className = 'mnt mnt-lost-panel';
  note.setAttribute('role', 'status');
  note.textContent = trans.__(
    'This panel ended with its kernel; a job that it launched runs on. To open it again, run %1 and this cell.',
    LOAD
  );
  return note;
}
