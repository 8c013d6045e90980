/** GPU row: utilization, memory, and what uses the GPU. */

import * as React from 'react';

import type { Gpu, NodeEntry } from '../schema';
import { isLent } from './lending';
import type { IContext } from './parts';
import { UsageRow } from './usage';
import { trans } from '../trans';

export function GpuRow(
  props: IContext & { node: NodeEntry; gpu: Gpu }
): JSX.Element {
  const { gpu, node } = props;
  const isBusy =
    (gpu.processes?.length ?? 0) > 0 || gpu.memory_used_bytes > 2 ** 30;
  const lent = isLent(node, gpu);
  return (
    <>
      <UsageRow
        name={trans.__('GPU %1', gpu.index)}
        label={trans.__('GPU %1', gpu.index)}
        share={gpu.utilization}
        used={gpu.memory_used_bytes}
        total={gpu.memory_total_bytes}
        reason={trans.__('NVML does not report it for this GPU.')}
      />
      {(isBusy || !lent || typeof gpu.temperature_c === 'number') && (
        <p className="m s">
          {[
            ...(typeof gpu.temperature_c === 'number'
              ? [`${Math.round(gpu.temperature_c)} °C`]
              : []),
            isBusy ? owner(props, node, gpu) : trans.__('not in use'),
            ...(lent ? [] : [trans.__('not lent by its owner')])
          ].join(', ')}
        </p>
      )}
    </>
  );
}

/** The job and rank that lease the GPU, else its processes. */
function owner(props: IContext, node: NodeEntry, gpu: Gpu): string {
  const { model } = props;
  for (const lease of node.view.info?.leases ?? []) {
    if (lease.gpus.includes(gpu.index)) {
      const job = model.job(lease.job_id);
      const place = job?.placements.find(
        one => one.node_id === node.view.info?.node_id
      );
      const local = place ? place.gpus.indexOf(gpu.index) : -1;
      const name = job?.name ?? lease.job_id;
      return place && local >= 0
        ? trans.__('%1, rank %2', name, place.first_rank + local)
        : name;
    }
  }
  const names = (gpu.processes ?? []).map(({ pid, user, command }) =>
    [user, command, `pid ${pid}`].filter(Boolean).join(', ')
  );
  return names.length
    ? trans.__('in use by %1', names.join('; '))
    : trans.__('in use by an unknown process');
}
