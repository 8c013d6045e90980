/** Choices of the toolbar that the browser remembers. */

import { SMOOTHINGS } from './axis/smoothing';
import type { ILook } from './toolbar';

const KEY = 'mntrain:charts';

const AXES = ['step', 'tokens', 'time'];

/** The last choice; default: `first`. */
export function recall(first: ILook): ILook {
  try {
    const { axis, smoothing } = JSON.parse(
      window.localStorage.getItem(KEY) ?? '{}'
    );
    return {
      ...first,
      ...(AXES.includes(axis) ? { axis } : {}),
      ...(SMOOTHINGS.includes(smoothing) ? { smoothing } : {})
    };
  } catch {
    return first; // storage that is off or holds something else
  }
}

export function remember(look: ILook): ILook {
  try {
    const { axis, smoothing } = look;
    window.localStorage.setItem(KEY, JSON.stringify({ axis, smoothing }));
  } catch {
    // storage that is off or full: the choice holds for this view
  }
  return look;
}
