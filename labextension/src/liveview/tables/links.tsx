/** The traffic of every node's link as a table. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import * as formats from '../../formats';
import { Measured } from '../../measured';
import type { SeriesStore } from '../../series/store';
import { Table } from './table';

export function LinkTable(props: {
  store: SeriesStore;
  trans: TranslationBundle;
}): JSX.Element {
  const { store, trans } = props;
  const rate = (value: formats.Maybe, reason: string) => (
    <Measured value={value} write={formats.bitRate} reason={reason} />
  );
  const missing = trans.__('No traffic has been counted.');
  return (
    <Table
      caption={trans.__('Links, per direction')}
      columns={[
        trans.__('node'),
        trans.__('interface'),
        trans.__('capacity'),
        trans.__('sent'),
        trans.__('by this job'),
        trans.__('received'),
        trans.__('by this job')
      ]}
    >
      {[...store.links.values()].map(({ link, now }) => (
        <tr key={link.node}>
          <th scope="row">{link.node}</th>
          <td>{link.interface}</td>
          <td>
            {rate(
              link.capacity_bytes_per_s,
              trans.__('Not measured. Fix: %mntrain measure')
            )}
          </td>
          {(['sent', 'own_sent', 'received', 'own_received'] as const).map(
            name => (
              <td key={name}>{rate(now[name], missing)}</td>
            )
          )}
        </tr>
      ))}
    </Table>
  );
}
