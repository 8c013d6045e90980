/** The same numbers as a table, and as text to copy. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import * as formats from '../formats';
import type { JobEntry } from '../schema';
import { RANK_COLUMNS, type SeriesStore } from '../series';
import { stateWord } from '../words';

export function Tables(props: {
  job: JobEntry;
  store: SeriesStore;
  trans: TranslationBundle;
}): JSX.Element {
  const { job, store, trans } = props;
  const states = new Map(job.ranks.map(rank => [rank.rank, rank.state]));
  return (
    <div className="mnt-tables">
      <table>
        <caption>{trans.__('Ranks, over their last steps')}</caption>
        <thead>
          <tr>
            {[
              trans.__('rank'),
              trans.__('node'),
              trans.__('state'),
              trans.__('stage'),
              trans.__('step'),
              trans.__('tok/s'),
              trans.__('pace'),
              trans.__('MFU'),
              trans.__('compute'),
              trans.__('wait'),
              trans.__('memory')
            ].map(name => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {store.sorted.map(({ who, table }) => (
            <tr key={who.rank}>
              <th scope="row">{who.rank}</th>
              <td>{who.node}</td>
              <td>{stateWord(states.get(who.rank) ?? 'unknown', trans)}</td>
              <td>{(who.stages ?? []).join(', ') || formats.ABSENT}</td>
              <td>{formats.count(table.last('step'))}</td>
              <td>{formats.rate(table.recent('tokens_per_s'))}</td>
              <td>{formats.rate(table.recent('pace_tokens_per_s'))}</td>
              <td>{formats.percent(table.recent('mfu'))}</td>
              <td>{formats.percent(table.recent('compute'))}</td>
              <td>{formats.percent(table.recent('wait'))}</td>
              <td>{formats.gibibytes(table.recent('memory_bytes'))}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {store.links.size > 0 && (
        <table>
          <caption>{trans.__('Links, per direction')}</caption>
          <thead>
            <tr>
              {[
                trans.__('node'),
                trans.__('interface'),
                trans.__('capacity'),
                trans.__('sent'),
                trans.__('of it ours'),
                trans.__('received'),
                trans.__('of it ours')
              ].map((name, i) => (
                <th key={i} scope="col">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {[...store.links.values()].map(({ link, table }) => (
              <tr key={link.node}>
                <th scope="row">{link.node}</th>
                <td>{link.interface}</td>
                <td>{formats.bitRate(link.capacity_bytes_per_s)}</td>
                <td>{formats.bitRate(table.recent('sent'))}</td>
                <td>{formats.bitRate(table.recent('own_sent'))}</td>
                <td>{formats.bitRate(table.recent('received'))}</td>
                <td>{formats.bitRate(table.recent('own_received'))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}

/** A row per rank and step, as the page has them. */
export function csv(store: SeriesStore): string {
  const lines = [['rank', 'node', ...RANK_COLUMNS].join(',')];
  for (const { who, table } of store.sorted) {
    const columns = RANK_COLUMNS.map(name => table.column(name));
    for (let row = 0; row < table.length; row++) {
      const values = columns.map(column =>
        Number.isNaN(column[row]) ? '' : String(column[row])
      );
      lines.push([who.rank, JSON.stringify(who.node), ...values].join(','));
    }
  }
  return lines.join('\n') + '\n';
}
