import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { infoIcon } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import { Widget } from '@lumino/widgets';

import { addTabs, jobArguments } from '../plugins/tabs';
import { context } from './context';
import { job } from './samples';

type Restored = Parameters<ILayoutRestorer['restore']>[1];

/** A shell that keeps what it is given, and the way back that the restorer was told. */
function opened(command: 'a-job' | 'some-jobs') {
  const added: Widget[] = [];
  let active = '';
  let back: Restored | null = null;
  const commands = new CommandRegistry();
  const shell = {
    add: (one: Widget) => added.push(one),
    activateById: (id: string) => (active = id)
  };
  const app = { commands, shell } as unknown as JupyterFrontEnd;
  const restorer = {
    restore: (_: unknown, options: Restored) => (back = options)
  } as unknown as ILayoutRestorer;
  const kind = {
    namespace: 'x',
    command,
    options: { label: command },
    icon: infoIcon,
    make: async () => new Widget(),
    entitle: (title: Widget['title'], args: object) =>
      (title.label = JSON.stringify(args))
  };
  const { model } = context({ jobs: [job()] }).props;
  if (command === 'a-job') {
    addTabs(app, restorer, { ...kind, takes: jobArguments(model) });
  } else {
    const read = ({ jobIds }: { jobIds?: unknown }) =>
      jobIds ? { jobIds: jobIds as string[] } : null;
    addTabs(app, restorer, { ...kind, takes: { described: {}, read } });
  }
  return { commands, added, back: () => back!, active: () => active };
}

it('a tab is opened once, and without a job it is that of the newest', async () => {
  const { commands, added, active } = opened('a-job');
  const newest = await commands.execute('a-job', {});
  const { job_id } = job();
  await commands.execute('a-job', { jobId: job_id });
  expect(added).toEqual([newest]);
  expect(active()).toBe(`x-${job_id}`);
  await commands.execute('a-job', { jobId: job_id, rank: 1 });
  expect(added).toHaveLength(2);
});

it('a tab is back after a reload with what it was opened with', async () => {
  const { commands, back } = opened('some-jobs');
  const widget = await commands.execute('some-jobs', { jobIds: ['a', 'b'] });
  expect(back().args!(widget)).toEqual({ jobIds: ['a', 'b'] });
  expect(back().name(widget)).toBe('x-a-b');
});

it('nothing opens where there is nothing to show', async () => {
  const { commands, added } = opened('some-jobs');
  await commands.execute('some-jobs', {});
  expect(added).toEqual([]);
});
