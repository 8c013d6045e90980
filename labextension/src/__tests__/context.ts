import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';

import { CommandIDs } from '../tokens';
import { job, node } from './samples';

/** What the sidebar is given, and what was done with it. */
export function context(fields: Record<string, unknown> = {}) {
  const commands = new CommandRegistry();
  const calls: [string, unknown][] = [];
  for (const id of [
    CommandIDs.stop,
    CommandIDs.save,
    CommandIDs.logs,
    CommandIDs.attach
  ]) {
    commands.addCommand(id, {
      execute: args => {
        calls.push([id, args]);
      }
    });
  }
  const model = {
    nodes: [node('wopr')],
    jobs: [job()],
    waiting: [],
    job: () => undefined,
    changed: new Signal<any, void>({}),
    ...fields
  } as any;
  const inserted: string[] = [];
  const insert = (text: string) => void inserted.push(text);
  return {
    props: {
      model,
      commands,
      insert,
      drag: () => undefined,
      hasLines: false,
      isSeen: () => true
    },
    calls,
    inserted
  };
}
