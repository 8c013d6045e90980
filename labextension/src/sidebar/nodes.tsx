/** Nodes: what each has, what it does now, and why it is silent. */

import * as React from 'react';

import { copy } from '../clipboard';
import { cellForNodes } from '../cells';
import * as formats from '../formats';
import { Icon } from '../icons';
import type { Gpu, Interface, NodeEntry } from '../schema';
import { CommandIDs } from '../tokens';
import { OVER, stateWord } from '../words';
import { type IContext, menuKeys, Meter, RowMenu } from './parts';

export function Nodes(props: IContext): JSX.Element {
  return (
    <ul className="mnt-list">
      {props.model.nodes.map(node => (
        <Node key={node.key} node={node} {...props} />
      ))}
    </ul>
  );
}

function Node(props: IContext & { node: NodeEntry }): JSX.Element {
  const { node, model, commands, trans, insert, drag } = props;
  const [isOpen, setOpen] = React.useState(true);
  const [hasMenu, setMenu] = React.useState(false);
  const { view } = node;
  const state = view.is_conflict ? 'lost' : view.liveness;
  const items = [
    {
      label: trans.__('Insert cell for %1', node.name),
      run: () => insert(cellForNodes([node]))
    },
    {
      label: trans.__('Copy address'),
      run: () => void copy(view.address)
    },
    {
      label: trans.__('Measure its links'),
      run: () =>
        void commands.execute(CommandIDs.measureLinks, {
          nodes: model.nodes
            .filter(one => one.view.liveness === 'up')
            .map(one => one.name)
        })
    },
    {
      label: trans.__('Remove from the list'),
      run: () => void commands.execute(CommandIDs.forgetNode, { key: node.key })
    }
  ];
  return (
    <li
      className="mnt-node"
      data-liveness={view.liveness}
      {...menuKeys(() => setMenu(true))}
    >
      <div
        className="mnt-row-head"
        onMouseDown={event => drag(event, node.name, cellForNodes([node]))}
      >
        <button
          className="mnt-disclose"
          aria-expanded={isOpen}
          onClick={() => setOpen(!isOpen)}
        >
          <Icon name={isOpen ? 'open' : 'closed'} /> <Icon name={state} />{' '}
          <span className="mnt-name">{node.name}</span>{' '}
          <span>{stateLine(node, trans)}</span>
        </button>
        <RowMenu
          label={trans.__('More for %1', node.name)}
          items={items}
          isOpen={hasMenu}
          setOpen={setMenu}
        />
      </div>
      {view.reason && <p className="mnt-indent">{view.reason}</p>}
      {isOpen && view.info && (
        <div className={`mnt-indent${state === 'up' ? '' : ' mnt-old'}`}>
          <Hardware {...props} />
          <Interfaces {...props} />
          {(node.divergences ?? []).map(one => (
            <p key={one.key} className="s">
              <Icon name="differs" size={12} />{' '}
              {one.majority
                ? trans.__(
                    '%1 %2, the others have %3',
                    one.key,
                    one.value ?? trans.__('not installed'),
                    one.majority
                  )
                : trans.__(
                    '%1 %2; the others differ',
                    one.key,
                    one.value ?? trans.__('not installed')
                  )}
            </p>
          ))}
        </div>
      )}
    </li>
  );
}

function stateLine(node: NodeEntry, trans: IContext['trans']): string {
  const { liveness, last_seen_s: seen, is_conflict } = node.view;
  if (is_conflict) {
    return trans.__('conflict');
  }
  const word = stateWord(liveness, trans);
  if ((liveness === 'suspect' || liveness === 'lost') && seen) {
    const silent = Math.max(0, Date.now() / 1000 - seen);
    return trans.__('%1, silent %2', word, formats.duration(silent));
  }
  return word;
}

function Hardware(props: IContext & { node: NodeEntry }): JSX.Element {
  const { node, trans } = props;
  const { info, beat } = node.view;
  const inventory = info!.inventory;
  const now = beat?.gpus?.length ? beat.gpus : inventory.gpus;
  if (inventory.gpus.length === 0) {
    const total = inventory.memory_total_bytes;
    const free =
      beat?.memory_available_bytes || inventory.memory_available_bytes;
    const share = beat ? (beat.cpu_share ?? 0) : null;
    return (
      <>
        <p className="m s">
          {trans._n('%1 core', '%1 cores', inventory.cpu_count)},{' '}
          {inventory.gpu_note ?? trans.__('no GPU')}
        </p>
        <div className="mnt-gpu">
          <span>{trans.__('CPU')}</span>
          <span className="mnt-value">
            {formats.percent(share, 0)}
            <Meter share={share} label={trans.__('CPU of %1', node.name)} />
          </span>
          <span className="mnt-value">
            {trans.__(
              '%1 of %2',
              formats.gibibytes(total - free, false),
              formats.gibibytes(total)
            )}
            <Meter
              share={(total - free) / total}
              label={trans.__('Memory of %1', node.name)}
            />
          </span>
        </div>
      </>
    );
  }
  const kinds = new Map<string, number>();
  for (const gpu of inventory.gpus) {
    kinds.set(gpu.name, (kinds.get(gpu.name) ?? 0) + 1);
  }
  return (
    <>
      <p className="m s">
        {[...kinds].map(([name, count]) => `${count} × ${name}`).join(', ')}
      </p>
      {now.map(gpu => (
        <GpuRow key={gpu.index} gpu={gpu} {...props} />
      ))}
    </>
  );
}

function GpuRow(props: IContext & { node: NodeEntry; gpu: Gpu }): JSX.Element {
  const { gpu, node, trans } = props;
  const isBusy =
    (gpu.processes?.length ?? 0) > 0 || gpu.memory_used_bytes > 2 ** 30;
  return (
    <>
      <div className="mnt-gpu">
        <span>{trans.__('GPU %1', gpu.index)}</span>
        <span className="mnt-value">
          {formats.percent(gpu.utilization, 0)}
          <Meter
            share={gpu.utilization}
            label={trans.__('Utilization of GPU %1', gpu.index)}
          />
        </span>
        <span className="mnt-value">
          {trans.__(
            '%1 of %2',
            formats.gibibytes(gpu.memory_used_bytes, false),
            formats.gibibytes(gpu.memory_total_bytes)
          )}
          <Meter
            share={gpu.memory_used_bytes / gpu.memory_total_bytes}
            label={trans.__('Memory of GPU %1', gpu.index)}
          />
        </span>
      </div>
      {(isBusy || typeof gpu.temperature_c === 'number') && (
        <p className="m s">
          {[
            ...(typeof gpu.temperature_c === 'number'
              ? [`${Math.round(gpu.temperature_c)} °C`]
              : []),
            isBusy ? owner(props, node, gpu) : trans.__('idle')
          ].join(', ')}
        </p>
      )}
    </>
  );
}

/** The job and rank that a lease names, or the processes themselves. */
function owner(props: IContext, node: NodeEntry, gpu: Gpu): string {
  const { model, trans } = props;
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
    ? trans.__('%1, not ours', names.join('; '))
    : trans.__('memory in use, not ours');
}

/** Those a job may train over: up, with an address, and not virtual. */
function Interfaces(props: IContext & { node: NodeEntry }): JSX.Element {
  const { node, model } = props;
  const { info, beat } = node.view;
  const used = new Set(
    model.jobs
      .filter(job => !OVER.has(job.state))
      .flatMap(job => job.placements)
      .filter(place => place.node_id === info!.node_id)
      .map(place => place.interface)
  );
  const shown = info!.inventory.interfaces.filter(
    one =>
      one.is_up &&
      (one.addresses?.length ?? 0) > 0 &&
      (used.has(one.name) || one.kind === 'ethernet' || one.kind === 'wireless')
  );
  return (
    <>
      {shown.map(one => {
        const rate = beat?.interfaces.find(now => now.name === one.name);
        return (
          <div key={one.name} className="mnt-interface">
            <span>
              {one.name}
              {speed(one) && `, ${speed(one)}`}
            </span>
            <span className="nw">
              ↑ {formats.bitRate(rate?.sent_bytes_per_s)} ↓{' '}
              {formats.bitRate(rate?.received_bytes_per_s)}
            </span>
          </div>
        );
      })}
    </>
  );
}

function speed(one: Interface): string {
  if (one.capacity && one.capacity.source !== 'nominal') {
    return formats.bitRate(one.capacity.bytes_per_s);
  }
  return one.speed_mbit_per_s
    ? formats.bitRate((one.speed_mbit_per_s * 1e6) / 8)
    : '';
}

/** Links: what each can carry, and how full the ones in use are. */
export function Links(props: IContext): JSX.Element {
  const { model, commands, trans } = props;
  const measured = model.nodes.flatMap(node =>
    (node.view.info?.inventory.interfaces ?? [])
      .filter(one => one.capacity && one.capacity.source === 'measured')
      .map(one => ({ node, one, capacity: one.capacity! }))
  );
  const oldest = Math.min(
    ...measured.map(({ capacity }) => capacity.time_s ?? 0)
  );
  return (
    <div className="mnt-indent">
      {measured.map(({ node, one, capacity }) => {
        const rate = node.view.beat?.interfaces.find(
          now => now.name === one.name
        );
        const share = rate
          ? rate.sent_bytes_per_s / capacity.bytes_per_s
          : null;
        return (
          <div key={`${node.key}-${one.name}`} className="mnt-link">
            <span>
              <span className="b">{node.name}</span>
              {capacity.peer ? ` → ${capacity.peer}` : ''}
            </span>
            <span className="mnt-value">
              {formats.percent(share)}
              <Meter
                share={share}
                label={trans.__('Link of %1, sending', node.name)}
              />
            </span>
            <span className="m s">
              {trans.__('of %1', formats.bitRate(capacity.bytes_per_s))}
            </span>
          </div>
        );
      })}
      <p className="m s">
        {measured.length
          ? trans.__(
              'Measured %1 ago.',
              formats.duration(Date.now() / 1000 - oldest)
            )
          : trans.__(
              'Not measured yet: then nobody knows how full they are.'
            )}{' '}
        <button
          className="mnt-textlink"
          onClick={() => void commands.execute(CommandIDs.measureLinks, {})}
        >
          {measured.length ? trans.__('Measure again') : trans.__('Measure')}
        </button>
      </p>
    </div>
  );
}
