/** Links: measured capacity and current utilization. */

import * as React from 'react';

import * as formats from '../formats';
import { Measured } from '../measured';
import type { Capacity, Interface, NodeEntry } from '../schema';
import { CommandIDs } from '../tokens';
import { type IContext, Meter } from './parts';

interface IMeasuredLink {
  node: NodeEntry;
  one: Interface;
  capacity: Capacity;
}

export function Links(props: IContext): JSX.Element {
  const { model, commands, trans } = props;
  const measured: IMeasuredLink[] = model.nodes.flatMap(node =>
    (node.view.info?.inventory.interfaces ?? [])
      .filter(one => one.capacity && one.capacity.source === 'measured')
      .map(one => ({ node, one, capacity: one.capacity! }))
  );
  const oldest = Math.min(
    ...measured.map(({ capacity }) => capacity.time_s ?? 0)
  );
  return (
    <div className="mnt-indent">
      {measured.map(link => (
        <Link
          key={`${link.node.key}-${link.one.name}`}
          {...link}
          trans={trans}
        />
      ))}
      <p className="m s">
        {measured.length
          ? trans.__(
              'Measured %1 ago.',
              formats.duration(Date.now() / 1000 - oldest)
            )
          : trans.__('Not measured yet: link utilization is n/a.')}{' '}
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

function Link(
  props: IMeasuredLink & { trans: IContext['trans'] }
): JSX.Element {
  const { node, one, capacity, trans } = props;
  const rate = node.view.beat?.interfaces.find(now => now.name === one.name);
  const share = rate ? rate.sent_bytes_per_s / capacity.bytes_per_s : null;
  return (
    <div className="mnt-link">
      <span>
        <span className="b">{node.name}</span>
        {capacity.peer ? ` → ${capacity.peer}` : ''}
      </span>
      <span className="mnt-value">
        <Measured
          value={share}
          write={formats.percent}
          reason={trans.__('This node has not reported its traffic yet.')}
        />
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
}
