/** A problem in words: its cause, then its fix. */

import type { TranslationBundle } from '@jupyterlab/translation';

import { RequestError } from './tokens';

export function problemText(error: Error, trans: TranslationBundle): string {
  const fix = error instanceof RequestError ? error.hint : null;
  return fix ? trans.__('%1. Fix: %2.', error.message, fix) : error.message;
}
