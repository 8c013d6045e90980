/** Hardware of a node: GPUs, or CPU and memory. */

import * as React from 'react';

import { trans } from '../trans';
import { GpuRow } from './gpu';
import { LentLines } from './lending';
import type { INodeContext } from './parts';
import { UsageRow } from './usage';

export function Hardware(props: INodeContext): JSX.Element {
  const { info, beat } = props.node.view;
  const { gpus, gpu_note: note } = info!.inventory;
  if (gpus.length === 0) {
    return <Cpu {...props} />;
  }
  const now = beat?.gpus?.length ? beat.gpus : gpus;
  const kinds = new Map<string, number>();
  for (const gpu of gpus) {
    kinds.set(gpu.name, (kinds.get(gpu.name) ?? 0) + 1);
  }
  return (
    <>
      <p className="m s">
        {[...kinds].map(([name, count]) => `${count} × ${name}`).join(', ')}
      </p>
      {note && <p className="m s">{note}</p>}
      <LentLines node={props.node} />
      {now.map(gpu => (
        <GpuRow key={gpu.index} gpu={gpu} {...props} />
      ))}
    </>
  );
}

function Cpu({ node, past }: INodeContext): JSX.Element {
  const { info, beat } = node.view;
  const { inventory } = info!;
  const total = inventory.memory_total_bytes;
  const free = beat?.memory_available_bytes || inventory.memory_available_bytes;
  return (
    <>
      <p className="m s">
        {trans._n('%1 core', '%1 cores', inventory.cpu_count)},{' '}
        {inventory.gpu_note ?? trans.__('no GPU')}
      </p>
      <LentLines node={node} />
      <UsageRow
        {...{ past }}
        part={['node']}
        name={trans.__('CPU')}
        label={trans.__('CPU of %1', node.name)}
        share={beat?.cpu_share}
        used={total - free}
        total={total}
        reason={trans.__('This node has not reported its load yet.')}
      />
    </>
  );
}
