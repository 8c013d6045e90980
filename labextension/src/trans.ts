/** Translation of the page's texts; the language is set before the page is drawn. */

import { type ITranslator, nullTranslator } from '@jupyterlab/translation';

const DOMAIN = 'jupyter_mntrain';

export let trans = nullTranslator.load(DOMAIN);

/** Called by every plugin as it starts; the language changes only with a reload of the page. */
export function useLanguage(translator: ITranslator | null): void {
  trans = (translator ?? nullTranslator).load(DOMAIN);
}
