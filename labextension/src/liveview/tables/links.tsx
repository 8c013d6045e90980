/** Link table: traffic per node and direction. */

import * as React from 'react';

import * as formats from '../../formats';
import { Measured } from '../../measured';
import { problemText } from '../../problem';
import type { LinkSummary } from '../../schema';
import type { IViewProps } from '../props';
import { type IColumn, type IRow, Table } from './table';
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
  const rowOf = (node: string, one: LinkSummary): IRow => {
    const direction =
      one.direction === 'sent' ? trans.__('→ sent') : trans.__('← received');
    return {
      key: `${node} ${one.direction}`,
      cells: [
        { shown: node, value: node },
        { shown: one.interface, value: one.interface },
        { shown: direction, value: one.direction },
        ...cells(one).map(([value, write, reason]) => ({
          shown: (
            <Measured
              value={value}
              write={write}
              reason={reason ?? undefined}
            />
          ),
          value
        }))
      ]
    };
  };
  return (
    <Table
      caption={trans.__('Links, per direction')}
      columns={columns()}
      rows={[...store.links.values()].flatMap(({ node, link }) =>
        [link.sent, link.received].map(one => rowOf(node, one))
      )}
    />
  );
}

function columns(): IColumn[] {
  return [
    { name: trans.__('node'), term: 'node' },
    { name: trans.__('interface') },
    { name: trans.__('direction') },
    { name: trans.__('rate') },
    { name: trans.__('by this job') },
    { name: trans.__('used'), term: 'link utilization' },
    { name: trans.__('of capacity'), term: 'capacity' }
  ];
}
