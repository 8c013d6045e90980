/** Interfaces of a node: speed and current traffic. */

import * as React from 'react';

import * as formats from '../formats';
import { Measured } from '../measured';
import type { Capacity, Interface, NodeEntry } from '../schema';
import { OVER } from '../words';
import type { IContext } from './parts';
import { trans } from '../trans';

/** Interfaces that a job may use: up, with an address, and not virtual. */
export function Interfaces(props: IContext & { node: NodeEntry }): JSX.Element {
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
  const written = (value: formats.Maybe) => (
    <Measured
      value={value}
      write={formats.bitRate}
      reason={trans.__('This node has not reported its traffic yet.')}
    />
  );
  return (
    <>
      {shown.map(one => {
        const known = capacities(one);
        const rate = beat?.interfaces.find(now => now.name === one.name);
        return (
          <div key={one.name} className="mnt-interface">
            <span title={known.length ? formats.capacity(known) : undefined}>
              {[one.name, ...speed(one, known)].join(', ')}
            </span>
            <span className="nw">
              ↑ {written(rate?.sent_bytes_per_s)} ↓{' '}
              {written(rate?.received_bytes_per_s)}
            </span>
          </div>
        );
      })}
    </>
  );
}

/** The slowest link's capacity, else what the interface calls itself. */
function speed(one: Interface, known: Capacity[]): string[] {
  if (known.length) {
    return [formats.bitRate(Math.min(...known.map(each => each.bytes_per_s)))];
  }
  const nominal = one.speed_mbit_per_s;
  return nominal ? [formats.bitRate((nominal * 1e6) / 8)] : [];
}

/** What the user gave for it, or what was measured to each other node. */
function capacities({ given, links }: Interface): Capacity[] {
  return given ? [given] : (links ?? []).map(link => link.capacity);
}
