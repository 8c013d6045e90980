/** Copies to the clipboard, also on pages served over plain HTTP, which lack the browser's API. */

import { Clipboard } from '@jupyterlab/apputils';

export async function copy(text: string): Promise<void> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
  } else {
    Clipboard.copyToSystem(text);
  }
}
