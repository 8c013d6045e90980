/** Link table: traffic per node and direction. */

import * as React from 'react';

import * as formats from '../../formats';
import { Measured } from '../../measured';
import { problemText } from '../../problem';
import type { IViewProps } from '../props';
import { Table } from './table';

export function LinkTable({ store, trans }: IViewProps): JSX.Element {
  const rate = (value: formats.Maybe, reason: string | null | undefined) => (
    <Measured
      value={value}
      write={formats.bitRate}
      reason={reason ?? undefined}
    />
  );
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
            <td>{rate(one.bytes_per_s, one.missing)}</td>
            <td>{rate(one.own_bytes_per_s, one.missing)}</td>
            <td>
              <Measured
                value={one.utilization}
                write={formats.percent}
                reason={one.missing ?? undefined}
              />
            </td>
            <td>
              <Measured
                value={one.capacity?.bytes_per_s}
                write={() =>
                  one.capacity
                    ? formats.capacity([one.capacity])
                    : formats.ABSENT
                }
                reason={problemText(
                  { cause: trans.__('Not measured'), fix: '%mntrain measure' },
                  trans
                )}
              />
            </td>
          </tr>
        ))
      )}
    </Table>
  );
}
