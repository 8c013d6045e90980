/** What a node's owner lends: hours, GPUs, memory of each. */

import * as React from 'react';

import * as formats from '../formats';
import type { Gpu, NodeEntry } from '../schema';
import { trans } from '../trans';

/** One line for each limit; nothing if everything is lent, always. */
export function LentLines({ node }: { node: NodeEntry }): JSX.Element {
  return (
    <>
      {lentLines(node).map(line => (
        <p key={line} className="m s">
          {line}
        </p>
      ))}
    </>
  );
}

function lentLines(node: NodeEntry): string[] {
  const { hours, gpus, memory_bytes: memory } = node.view.info?.lending ?? {};
  const lines: string[] = [];
  if (gpus || typeof memory === 'number') {
    const none = gpus?.length === 0;
    const names = gpus
      ? trans._n('GPU %2', 'GPUs %2', gpus.length, gpus.join(', '))
      : trans.__('all GPUs');
    const lent = none ? trans.__('no GPU') : names;
    lines.push(
      typeof memory === 'number'
        ? trans.__('Lent: %1, %2 of each', lent, formats.memory(memory))
        : trans.__('Lent: %1', lent)
    );
  }
  if (hours) {
    lines.push(trans.__('Lent: %1, by its clock', hours));
  }
  return lines;
}

/** Whether the owner lends a GPU. */
export function isLent(node: NodeEntry, gpu: Gpu): boolean {
  const gpus = node.view.info?.lending?.gpus;
  return !gpus || gpus.includes(gpu.index);
}
