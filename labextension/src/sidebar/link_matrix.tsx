/** Link matrix: the capacity of every link between nodes; slower ones are redder. */

import * as React from 'react';

import * as formats from '../formats';
import type { LinkMeasurement } from '../schema';
import { trans } from '../trans';

/** Maximum number of columns; with more nodes, only traffic rows are shown. */
const MOST_NODES = 10;

/** Shares of the fastest link's capacity, from which on a link is green or yellow. */
const GOOD = 0.9;
const FAIR = 0.5;

/** Senders down, receivers across; nothing for two nodes, and for more than fit. */
export function LinkMatrix(props: {
  links: LinkMeasurement[];
}): JSX.Element | null {
  const links = props.links
    .filter(one => !one.outdated)
    .sort((one, other) => rate(one) - rate(other));
  const nodes = [...new Set(links.map(one => one.sender))].sort();
  if (nodes.length < 3 || nodes.length > MOST_NODES) {
    return null;
  }
  // Of several networks, the one that carries most: it comes last.
  const byPair = new Map(links.map(one => [pair(one), one]));
  const fastest = rate(links[links.length - 1]);
  const marks = new Set(links.map(one => mark(rate(one) / fastest)));
  return (
    <div
      className="mnt-matrix"
      role="region"
      aria-label={trans.__('Capacity of each link')}
      tabIndex={0} // so that the keyboard scrolls it
    >
      <table>
        <thead>
          <tr>
            <th scope="col">{trans.__('from \\ to')}</th>
            {nodes.map((name, index) => (
              <th key={name} scope="col" title={name}>
                {index + 1}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {nodes.map((sender, index) => (
            <tr key={sender}>
              <th scope="row">{`${index + 1} ${sender}`}</th>
              {nodes.map(receiver => (
                <Cell
                  key={receiver}
                  link={byPair.get(`${sender}\n${receiver}`)}
                  fastest={fastest}
                />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {marks.size > 1 || !marks.has('') ? (
        <p className="m s">
          {trans.__('▽ less than 90 % of the fastest, ▼ less than half')}
        </p>
      ) : null}
    </div>
  );
}

function Cell(props: {
  link: LinkMeasurement | undefined;
  fastest: number;
}): JSX.Element {
  const { link, fastest } = props;
  if (!link) {
    return <td className="m">—</td>;
  }
  const share = rate(link) / fastest;
  const color = share >= GOOD ? 'c-ok' : share >= FAIR ? 'c-warn' : 'c-bad';
  const latency = link.latency
    ? trans.__('; latency %1', formats.latency(link.latency.median_s))
    : '';
  const title = `${link.sender} → ${link.receiver}, ${link.interface}: ${formats.capacity([link.capacity])}${latency}`;
  return (
    <td className={color} title={title}>
      {mark(share) + formats.shortBitRate(rate(link))}
    </td>
  );
}

function mark(share: number): string {
  return share >= GOOD ? '' : share >= FAIR ? '▽' : '▼';
}

function rate(link: LinkMeasurement): number {
  return link.capacity.bytes_per_s;
}

function pair(link: LinkMeasurement): string {
  return `${link.sender}\n${link.receiver}`;
}
