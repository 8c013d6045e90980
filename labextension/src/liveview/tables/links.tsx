/** Link table: traffic per node and direction. */

import * as React from 'react';

import * as formats from '../../formats';
import { Measured } from '../../measured';
import { problemText } from '../../problem';
import type { LinkSummary } from '../../schema';
import type { IViewProps } from '../props';
import { Table } from './table';
import { trans } from '../../trans';

export function LinkTable({ store }: IViewProps): JSX.Element {
  const notMeasured = problemText({
    cause: trans.__('Not measured'),
    fix: '%mntrain measure'
  });
  const cells = (one: LinkSummary) =>
    [
      [one.bytes_per_s, formats.bitRate, one.missing],
      [one.own_bytes_per_s, formats.bitRate, one.missing],
      [one.utilization, formats.percent, one.missing],
      [
        one.capacity?.bytes_per_s,
        () =>
          one.capacity ? formats.capacity([one.capacity]) : formats.ABSENT,
        notMeasured
      ]
    ] as const;
  return (
    <Table
      caption={trans.__('Links, per direction')}
      columns={[
        trans.__('node'),
        trans.__('interface'),
        trans.__('direction'),
        trans.__('rate'),
        trans.__('by this job'),
        trans.__('used'),
        trans.__('of capacity')
      ]}
    >
      {[...store.links.values()].flatMap(({ node, link }) =>
        [link.sent, link.received].map(one => (
          <tr key={`${node} ${one.direction}`}>
            <th scope="row">{node}</th>
            <td>{one.interface}</td>
            <td>
              {one.direction === 'sent'
                ? trans.__('→ sent')
                : trans.__('← received')}
            </td>
            {cells(one).map(([value, write, reason], i) => (
              <td key={i}>
                <Measured
                  value={value}
                  write={write}
                  reason={reason ?? undefined}
                />
              </td>
            ))}
          </tr>
        ))
      )}
    </Table>
  );
}
