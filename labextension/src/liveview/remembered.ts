/** Choices of the toolbar that the browser remembers. */

import type { ILook } from './toolbar';

const KEY = 'mntrain:charts';

const AXES = ['step', 'tokens', 'time'];

/** What was chosen last; else what `first` says. */
export function recall(first: ILook): ILook {
  try {
    const { axis } = JSON.parse(window.localStorage.getItem(KEY) ?? '{}');
    return { ...first, ...(AXES.includes(axis) ? { axis } : {}) };
  } catch {
    return first; // storage that is off or holds something else
  }
}

export function remember(look: ILook): ILook {
  try {
    window.localStorage.setItem(KEY, JSON.stringify({ axis: look.axis }));
  } catch {
    // storage that is off or full: the choice holds for this view
  }
  return look;
}
