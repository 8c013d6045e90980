/** The system's clipboard, also on pages served over plain HTTP, where browsers offer no API for it. */

import { Clipboard } from '@jupyterlab/apputils';

export async function copy(text: string): Promise<void> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
  } else {
    Clipboard.copyToSystem(text);
  }
}
