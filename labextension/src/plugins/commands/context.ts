/** Command helpers: context, arguments, requests and notifications. */

import { Notification } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyJSONObject } from '@lumino/coreutils';

import { problemText } from '../../problem';
import { type IClusterModel, problemOf } from '../../tokens';

export interface ICommandContext {
  commands: CommandRegistry;
  model: IClusterModel;
}

const TYPES = {
  strings: { type: 'array', items: { type: 'string' } },
  string: { type: 'string' },
  number: { type: 'number' },
  boolean: { type: 'boolean' }
} as const;

/** A command's `describedBy`: the type and description of every argument. */
export function describe(
  args: Record<string, readonly [keyof typeof TYPES, string]> = {}
): { args: ReadonlyJSONObject } {
  const properties = Object.entries(args).map(([name, [type, description]]) => [
    name,
    { ...TYPES[type], description }
  ]);
  return {
    args: { type: 'object', properties: Object.fromEntries(properties) }
  };
}

/** How long a success notification stays. */
const SAID_MS = 4000;

export function succeeded(text: string): void {
  Notification.success(text, { autoClose: SAID_MS });
}

/** Send a request; if it fails, show the problem as a notification. */
export async function request<T>(
  ask: () => Promise<T>
): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    Notification.error(problemText(problemOf(error)), {
      autoClose: false
    });
    return undefined;
  }
}
