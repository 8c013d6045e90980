/** Rank table: recent figures of every rank. */

import * as React from 'react';

import * as formats from '../../formats';
import { Measured } from '../../measured';
import { ranksOf, stateWord } from '../../words';
import type { IViewProps } from '../props';
import { Table } from './table';
import { trans } from '../../trans';

const FIGURES = [
  ['tokens_per_s', formats.rate],
  ['pace_tokens_per_s', formats.rate],
  ['mfu', formats.percent],
  ['compute', formats.percent],
  ['wait', formats.percent],
  ['memory_bytes', formats.memory]
] as const;

export function RankTable({ job, store }: IViewProps): JSX.Element {
  const ranks = new Map(ranksOf(job).map(rank => [rank.rank, rank]));
  return (
    <Table
      caption={trans.__('Ranks, recent figures')}
      columns={[
        trans.__('rank'),
        trans.__('node'),
        trans.__('state'),
        trans.__('pid'),
        trans.__('stage'),
        trans.__('step'),
        trans.__('tok/s'),
        trans.__('pace'),
        trans.__('MFU'),
        trans.__('computing'),
        trans.__('waiting'),
        trans.__('memory')
      ]}
    >
      {store.sorted.map(({ who }) => (
        <tr key={who.rank}>
          <th scope="row">{who.rank}</th>
          <td>{who.node}</td>
          <td>{stateWord(ranks.get(who.rank)?.state ?? 'unknown')}</td>
          <td>{ranks.get(who.rank)?.pid ?? trans.__('n/a')}</td>
          <td>{who.stages?.join(', ') || trans.__('none')}</td>
          <td>{formats.count(who.step)}</td>
          {FIGURES.map(([name, write]) => (
            <td key={name}>
              <Measured
                value={who[name]}
                write={write}
                reason={who.missing?.[name === 'wait' ? 'compute' : name]}
              />
            </td>
          ))}
        </tr>
      ))}
    </Table>
  );
}
