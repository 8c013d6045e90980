/** What every command needs, and how one asks the Jupyter server. */

import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import { problemText } from '../../problem';
import type { IClusterModel } from '../../tokens';

export interface ICommandContext {
  commands: CommandRegistry;
  model: IClusterModel;
  trans: TranslationBundle;
}

/** What was done is said for so long. */
const SAID_MS = 4000;

export function succeeded(text: string): void {
  Notification.success(text, { autoClose: SAID_MS });
}

/** The answer, or a notification that says what is wrong and what to do. */
export async function request<T>(
  ask: () => Promise<T>,
  trans: TranslationBundle
): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    Notification.error(problemText(error as Error, trans), {
      autoClose: false
    });
    return undefined;
  }
}
