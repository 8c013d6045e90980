/** Page title: marked while a hidden page has news. */

const MARKS = { good: '✓', bad: '✕' };

export class TitleMark {
  constructor(private document: Document) {
    document.addEventListener('visibilitychange', this.look);
  }

  /** Mark the title, if the page is hidden. A bad mark is not replaced by a good one. */
  add(isBad: boolean): void {
    if (!this.document.hidden || this.mark === MARKS.bad) {
      return;
    }
    this.remove();
    this.mark = isBad ? MARKS.bad : MARKS.good;
    this.document.title = `${this.mark} ${this.document.title}`;
  }

  dispose(): void {
    this.document.removeEventListener('visibilitychange', this.look);
    this.remove();
  }

  private look = (): void => {
    if (!this.document.hidden) {
      this.remove();
    }
  };

  private remove(): void {
    const before = `${this.mark} `;
    // JupyterLab sets the title when another tab is opened: the mark is gone then.
    if (this.mark && this.document.title.startsWith(before)) {
      this.document.title = this.document.title.slice(before.length);
    }
    this.mark = '';
  }

  private mark = '';
}
