/** Text to the system's clipboard: also where the page came over plain HTTP, which has no other. */

import { Clipboard } from '@jupyterlab/apputils';

export async function copy(text: string): Promise<void> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
  } else {
    Clipboard.copyToSystem(text);
  }
}
