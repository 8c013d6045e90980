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
  if (gpus) {
    const names = gpus.length ? gpus.join(', ') : trans.__('none');
    lines.push(trans.__('GPUs lent: %1', names));
  }
  if (typeof memory === 'number') {
    lines.push(trans.__('Lent of each GPU: %1', formats.memory(memory)));
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
