/** Source of the cells that the page inserts. */

import type { JobEntry, NodeEntry } from './schema';

export const LOAD = '%load_ext jupyter_mntrain';

export const NODES = `${LOAD}\n%mntrain nodes`;

export const PANEL = `${LOAD}\n%mntrain panel`;

/** A built-in recipe, so that the cell runs as it is. */
const FIRST = 'quick-check';

/** Names that are safe in a line magic. Others are never written into a cell. */
const PLAIN = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;

/** Default number of processes on a node: one per GPU that is offered, at least one. */
function processes(node: NodeEntry): number {
  const { inventory, availability } = node.view.info ?? {};
  const offered = inventory?.gpus.filter(
    gpu => availability?.gpus?.includes(gpu.index) ?? true
  );
  return Math.max(1, offered?.length ?? 0);
}

/** Panel for a file, by its path from the notebook's folder. */
export function cellForPanel(path: string): string {
  return `${PANEL} ${word(path)}`;
}

/** A word of a line magic: split as in a shell, where IPython replaces {name} and $name. */
function word(text: string): string {
  // Neither an option nor somebody's home.
  const plain = /^[-~]/.test(text) ? `./${text}` : text;
  if (/^[\w./-]+$/.test(plain)) {
    return plain;
  }
  const quoted = plain
    .replace(/[\\"]/g, '\\$&')
    .replace(/[{}]/g, '$&$&')
    .replace(/\$/g, '$$""');
  return `"${quoted}"`;
}

export function cellForNodes(nodes: ReadonlyArray<NodeEntry>): string {
  const members = nodes
    .filter(node => PLAIN.test(node.name))
    .map(node => `--member ${node.name}:${processes(node)}`);
  return `${LOAD}\n%mntrain launch ${FIRST} ${members.join(' ')}`.trim();
}

export function cellForJob(job: JobEntry): string {
  return cellForLaunch(job.job_id);
}

/** Follows a job by its id, or a launch that still waits by the name of its cluster. */
export function cellForLaunch(name: string): string {
  return `${LOAD}\n%mntrain attach ${name}`;
}
