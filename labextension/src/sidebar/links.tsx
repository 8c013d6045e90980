/** Links: measured capacity and current utilization. */

import * as React from 'react';

import { Bar } from '../controls';
import * as formats from '../formats';
import { Measured } from '../measured';
import type { Capacity, LinkMeasurement, NodeEntry } from '../schema';
import { CommandIDs } from '../tokens';
import { LinkMatrix } from './link_matrix';
import type { IContext } from './parts';
import { trans } from '../trans';

interface IMeasuredLink {
  node: NodeEntry;
  /** From one interface, fastest first: its traffic is that of all of them together. */
  links: LinkMeasurement[];
}

export function Links(props: IContext): JSX.Element {
  const { model, commands } = props;
  const measured: IMeasuredLink[] = model.nodes.flatMap(node =>
    (node.view.info?.inventory.interfaces ?? [])
      .map(one => ({ node, links: byRate(current(one.links)) }))
      .filter(one => one.links.length)
  );
  const outdated = model.nodes.some(node =>
    (node.view.info?.inventory.interfaces ?? []).some(one =>
      one.links?.some(link => link.outdated)
    )
  );
  return (
    <div className="mnt-indent">
      <LinkMatrix links={measured.flatMap(one => one.links)} />
      {measured.map(one => (
        <Link key={`${one.node.key}-${one.links[0].interface}`} {...one} />
      ))}
      <p className="m s">
        {measured.length
          ? ''
          : trans.__('Not measured yet: link utilization is n/a.')}
        {outdated
          ? trans.__('Some links have changed since they were measured.')
          : ''}{' '}
        <button
          className="mnt-textlink"
          onClick={() => void commands.execute(CommandIDs.measureLinks, {})}
        >
          {measured.length ? trans.__('Measure again') : trans.__('Measure')}
        </button>{' '}
        <button
          className="mnt-textlink"
          onClick={() => void commands.execute(CommandIDs.bench, {})}
        >
          {trans.__('Benchmark')}
        </button>
      </p>
    </div>
  );
}

/** Without those from before an interface changed. */
function current(links: LinkMeasurement[] | undefined): LinkMeasurement[] {
  return (links ?? []).filter(one => !one.outdated);
}

function byRate(links: LinkMeasurement[]): LinkMeasurement[] {
  return [...links].sort(
    (one, other) => other.capacity.bytes_per_s - one.capacity.bytes_per_s
  );
}

/** What a link can carry, or what it carries now if that is more: nothing is used beyond 100 %. */
function carried(known: Capacity, rate: number): Capacity {
  return rate > known.bytes_per_s
    ? { ...known, bytes_per_s: rate, is_exceeded: true }
    : known;
}

function Link(props: IMeasuredLink): JSX.Element {
  const { node, links } = props;
  const { interface: name, receiver } = links[0];
  const rate = node.view.heartbeat?.interfaces.find(now => now.name === name);
  const sent = rate?.sent_bytes_per_s ?? null;
  const capacity = carried(links[0].capacity, sent ?? 0);
  const share = sent === null ? null : sent / capacity.bytes_per_s;
  const each = links
    .map(
      one =>
        `→ ${one.receiver}: ${formats.capacity([one.capacity])}` +
        (one.latency
          ? trans.__('; latency %1', formats.latency(one.latency.median_s))
          : '')
    )
    .join('\n');
  return (
    <div className="mnt-link">
      <span>
        <span className="b">{node.name}</span>
        {' → '}
        {links.length === 1 ? receiver : trans.__('%1 nodes', links.length)}
      </span>
      <span className="mnt-value">
        <Measured
          value={share}
          write={formats.percent}
          reason={trans.__('This node has not reported its traffic yet.')}
        />
        <Bar
          role="meter"
          share={share}
          label={trans.__('Link of %1, sending', node.name)}
        />
      </span>
      <span className="m s" title={each}>
        {trans.__('of %1', formats.capacity([capacity]))}
      </span>
    </div>
  );
}
