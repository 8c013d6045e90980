/** What a node's owner offers: hours, GPUs, memory of each. */

import * as React from 'react';

import * as formats from '../formats';
import type { Gpu, NodeEntry } from '../schema';
import { trans } from '../trans';

/** One line for each limit; nothing if everything is offered, always. */
export function AvailabilityLines({ node }: { node: NodeEntry }): JSX.Element {
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
  const {
    hours,
    gpus,
    memory_bytes: memory
  } = node.view.info?.availability ?? {};
  const lines: string[] = [];
  if (gpus || typeof memory === 'number') {
    const none = gpus?.length === 0;
    const names = gpus
      ? trans._n('GPU %2', 'GPUs %2', gpus.length, gpus.join(', '))
      : trans.__('all GPUs');
    const offered = none ? trans.__('no GPU') : names;
    lines.push(
      typeof memory === 'number'
        ? trans.__('Offered: %1, %2 of each', offered, formats.memory(memory))
        : trans.__('Offered: %1', offered)
    );
  }
  if (hours) {
    lines.push(trans.__('Offered: %1, by its clock', hours));
  }
  return lines;
}

/** Whether the owner offers a GPU. */
export function isOffered(node: NodeEntry, gpu: Gpu): boolean {
  const gpus = node.view.info?.availability?.gpus;
  return !gpus || gpus.includes(gpu.index);
}
