/** Submit panels: what ipywidgets leave out, `aria-disabled` and a focus that survives a redraw. */

import type { NotebookPanel } from '@jupyterlab/notebook';

/** The class that the kernel gives the root of a panel. */
export const PANEL = '.mnt-panel';

/** The class that it gives a button that does nothing now. */
const BLOCKED = 'mnt-blocked';

const CONTROLS = 'button, input, select';

/** Watch the panels of a notebook while it is open. */
export function tendPanels(panel: NotebookPanel): void {
  const { node } = panel.content;
  const focus = new KeptFocus(node);
  const tend = () => {
    for (const button of node.querySelectorAll(`${PANEL} button`)) {
      markBlocked(button);
    }
    focus.restore();
  };
  const observer = new MutationObserver(tend);
  observer.observe(node, {
    subtree: true,
    childList: true,
    attributes: true,
    attributeFilter: ['class']
  });
  panel.disposed.connect(() => observer.disconnect());
  tend();
}

/** Mark a button as blocked; it keeps the focus. */
export function markBlocked(button: Element): void {
  const isBlocked = button.classList.contains(BLOCKED);
  if (isBlocked !== button.hasAttribute('aria-disabled')) {
    button.toggleAttribute('aria-disabled', isBlocked);
    if (isBlocked) {
      button.setAttribute('aria-disabled', 'true');
    }
  }
}

/** A panel whose output is updated is drawn again: the control at the same place gets the focus. */
export class KeptFocus {
  constructor(root: HTMLElement) {
    root.addEventListener('focusin', event => {
      const control = event.target as HTMLElement;
      const drawn = control.closest(PANEL);
      this.output = drawn?.closest('.jp-OutputArea-output') ?? null;
      this.control = this.output && control;
      this.index = drawn ? controls(drawn).indexOf(control) : -1;
    });
    // Who goes elsewhere by themselves is not fetched back; what is removed is not left.
    root.addEventListener('focusout', event => {
      const left = event.target as HTMLElement;
      window.setTimeout(() => {
        if (left === this.control && left.isConnected) {
          this.control = null;
        }
      });
    });
  }

  restore(): void {
    if (!this.control || this.control.isConnected) {
      return;
    }
    const drawn = this.output?.querySelector(PANEL);
    const control = drawn && controls(drawn)[this.index];
    if (control && document.activeElement === document.body) {
      control.focus();
    }
  }

  private output: Element | null = null;
  private control: HTMLElement | null = null;
  private index = -1;
}

const controls = (drawn: Element) => [
  ...drawn.querySelectorAll<HTMLElement>(CONTROLS)
];
