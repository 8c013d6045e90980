/** Interfaces of a node: speed and current traffic. */

import * as React from 'react';

import * as formats from '../formats';
import type { Past } from '../history/past';
import { Measured } from '../measured';
import type { Capacity, Interface, NodeInfo } from '../schema';
import { OVER } from '../words';
import { LineRow } from './line';
import type { INodeContext } from './parts';
import { trans } from '../trans';

/**
 * Interfaces that others reach the node over, as `mntrain nodes` lists them, and those of its jobs.
 * Over other interfaces than loopback, an agent on loopback cannot be reached.
 */
export function Interfaces(props: INodeContext): JSX.Element {
  const { node, model, past } = props;
  const { info, heartbeat } = node.view;
  const used = new Set(
    model.jobs
      .filter(job => !OVER.has(job.state))
      .flatMap(job => job.placements)
      .filter(place => place.node_id === info!.node_id)
      .map(place => place.interface)
  );
  const kinds = isOnLoopback(info!) ? ['loopback'] : ['ethernet', 'wireless'];
  const shown = info!.inventory.interfaces.filter(
    one =>
      one.is_up &&
      (one.addresses?.length ?? 0) > 0 &&
      (used.has(one.name) || kinds.includes(one.kind))
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
        const rate = heartbeat?.interfaces.find(now => now.name === one.name);
        const sent = written(rate?.sent_bytes_per_s);
        const received = written(rate?.received_bytes_per_s);
        return (
          <React.Fragment key={one.name}>
            <div className="mnt-interface">
              <span title={known.length ? formats.capacity(known) : undefined}>
                {[one.name, ...speed(one, known)].join(', ')}
              </span>
              {!past && (
                <span className="nw">
                  ↑ {sent} ↓ {received}
                </span>
              )}
            </div>
            {past && <Lines {...{ past, sent, received }} of={one} />}
          </React.Fragment>
        );
      })}
    </>
  );
}

function isOnLoopback({ addresses }: NodeInfo): boolean {
  return (
    addresses.length > 0 &&
    addresses.every(one => /^(127\.|\[::1\]|localhost)/.test(one))
  );
}

/** What it sends and receives; the scale ends at its capacity, else at its nominal speed. */
function Lines(props: {
  past: Past;
  of: Interface;
  sent: React.ReactNode;
  received: React.ReactNode;
}): JSX.Element {
  const { past, of, sent, received } = props;
  const { name } = of;
  const line = (figure: 'sent_bytes_per_s' | 'received_bytes_per_s') =>
    past.line('interface', figure, name, nominalSpeed(of));
  return (
    <>
      <LineRow
        name={trans.__('↑ out')}
        label={trans.__('%1, sending', name)}
        line={line('sent_bytes_per_s')}
        write={formats.bitRate}
      >
        {sent}
      </LineRow>
      <LineRow
        name={trans.__('↓ in')}
        label={trans.__('%1, receiving', name)}
        line={line('received_bytes_per_s')}
        write={formats.bitRate}
      >
        {received}
      </LineRow>
    </>
  );
}

/** Capacity of the slowest link, else the interface's nominal speed. */
function speed(one: Interface, known: Capacity[]): string[] {
  if (known.length) {
    return [formats.bitRate(Math.min(...known.map(each => each.bytes_per_s)))];
  }
  const nominal = nominalSpeed(one);
  return nominal ? [formats.bitRate(nominal)] : [];
}

/** In bytes per second. */
function nominalSpeed({ speed_mbit_per_s: speed }: Interface): number | null {
  return speed ? (speed * 1e6) / 8 : null;
}

/** What the user gave for it, or what was measured to each other node. */
function capacities({ given, links }: Interface): Capacity[] {
  return given ? [given] : (links ?? []).map(link => link.capacity);
}
