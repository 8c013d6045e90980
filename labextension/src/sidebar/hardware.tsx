/** Hardware of a node: GPUs, or CPU and memory. */

import * as React from 'react';

import type { Gpu, Versions } from '../schema';
import { trans } from '../trans';
import { GpuRow } from './gpu';
import { AvailabilityLines } from './availability';
import type { INodeContext } from './parts';
import { UsageRow } from './usage';

export function Hardware(props: INodeContext): JSX.Element {
  const { info, heartbeat } = props.node.view;
  const { gpus, gpu_note: note, versions } = info!.inventory;
  if (gpus.length === 0) {
    return <Cpu {...props} />;
  }
  const now = heartbeat?.gpus?.length ? heartbeat.gpus : gpus;
  const kinds = new Map<string, number>();
  for (const gpu of gpus) {
    kinds.set(gpu.name, (kinds.get(gpu.name) ?? 0) + 1);
  }
  return (
    <>
      <p className="m s" title={abilities(gpus, versions)}>
        {[...kinds].map(([name, count]) => `${count} × ${name}`).join(', ')}
      </p>
      {note && <p className="m s">{note}</p>}
      <AvailabilityLines node={props.node} />
      {now.map(gpu => (
        <GpuRow key={gpu.index} gpu={gpu} {...props} />
      ))}
    </>
  );
}

/** What recipes and torch need: RTX 3090: compute capability 8.6, then the driver. */
function abilities(gpus: readonly Gpu[], versions: Versions): string {
  const lines = gpus
    .filter(gpu => gpu.compute_capability)
    .map(gpu =>
      trans.__(
        '%1: compute capability %2',
        gpu.name,
        gpu.compute_capability!.join('.')
      )
    );
  const { driver, driver_cuda: cuda } = versions;
  if (driver) {
    lines.push(
      cuda
        ? trans.__('driver %1, CUDA %2', driver, cuda)
        : trans.__('driver %1', driver)
    );
  }
  return [...new Set(lines)].join('\n');
}

function Cpu({ node, past }: INodeContext): JSX.Element {
  const { info, heartbeat } = node.view;
  const { inventory } = info!;
  const total = inventory.memory_total_bytes;
  const free =
    heartbeat?.memory_available_bytes || inventory.memory_available_bytes;
  return (
    <>
      <p className="m s">
        {trans._n('%1 core', '%1 cores', inventory.cpu_count)},{' '}
        {inventory.gpu_note ?? trans.__('no GPU')}
      </p>
      <AvailabilityLines node={node} />
      <UsageRow
        {...{ past }}
        part={['node']}
        name={trans.__('CPU')}
        label={trans.__('CPU of %1', node.name)}
        share={heartbeat?.cpu_share}
        used={total - free}
        total={total}
        reason={trans.__('This node has not reported its load yet.')}
      />
    </>
  );
}
