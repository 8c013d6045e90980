/** Rows of a GPU: utilization, memory, temperature, and what uses the GPU. */

import * as React from 'react';

import type { Gpu } from '../schema';
import { isOffered } from './availability';
import { LineRow } from './line';
import type { INodeContext } from './parts';
import { UsageRow } from './usage';
import { trans } from '../trans';

export function GpuRow(props: INodeContext & { gpu: Gpu }): JSX.Element {
  const { gpu, node, past } = props;
  const name = trans.__('GPU %1', gpu.index);
  const isBusy = (gpu.processes?.length ?? 0) > 0;
  const offered = isOffered(node, gpu);
  const degrees =
    typeof gpu.temperature_c === 'number'
      ? `${Math.round(gpu.temperature_c)} °C`
      : null;
  return (
    <>
      <UsageRow
        {...{ name, past }}
        label={name}
        part={['gpu', gpu.uuid]}
        share={gpu.utilization}
        used={gpu.memory_used_bytes}
        total={gpu.memory_total_bytes}
        reason={trans.__('NVML does not report it for this GPU.')}
      />
      {past && degrees && (
        <LineRow
          name={trans.__('temp')}
          label={trans.__('Temperature of %1', name)}
          line={past.line('gpu', 'temperature_c', gpu.uuid)}
          write={value => `${Math.round(value)} °C`}
        >
          {degrees}
        </LineRow>
      )}
      {(isBusy || !offered || degrees) && (
        <p className="m s">
          {[
            ...(degrees && !past ? [degrees] : []),
            isBusy ? owner(props) : trans.__('not in use'),
            ...(offered ? [] : [trans.__('not offered by its owner')])
          ].join(', ')}
        </p>
      )}
    </>
  );
}

/** The job and rank that lease the GPU, else its processes. */
function owner(props: INodeContext & { gpu: Gpu }): string {
  const { model, node, gpu } = props;
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
