/** Rank table: recent figures of every rank. */

import * as React from 'react';

import * as formats from '../../formats';
import { Measured } from '../../measured';
import type { RankSummary } from '../../schema';
import { ranksOf, stateWord } from '../../words';
import type { IViewProps } from '../props';
import { Table } from './table';

export function RankTable({ job, store, trans }: IViewProps): JSX.Element {
  const states = new Map(ranksOf(job).map(rank => [rank.rank, rank.state]));
  return (
    <Table
      caption={trans.__('Ranks, recent figures')}
      columns={[
        trans.__('rank'),
        trans.__('node'),
        trans.__('state'),
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
        <RankRow
          key={who.rank}
          who={who}
          state={stateWord(states.get(who.rank) ?? 'unknown', trans)}
          trans={trans}
        />
      ))}
    </Table>
  );
}

function RankRow(
  props: Pick<IViewProps, 'trans'> & { who: RankSummary; state: string }
): JSX.Element {
  const { who, state, trans } = props;
  return (
    <tr>
      <th scope="row">{who.rank}</th>
      <td>{who.node}</td>
      <td>{state}</td>
      <td>{who.stages?.length ? who.stages.join(', ') : trans.__('none')}</td>
      <td>{formats.count(who.step)}</td>
      {(
        [
          ['tokens_per_s', formats.rate],
          ['pace_tokens_per_s', formats.rate],
          ['mfu', formats.percent],
          ['compute', formats.percent],
          ['wait', formats.percent],
          ['memory_bytes', formats.memory]
        ] as const
      ).map(([name, write]) => (
        <td key={name}>
          <Measured
            value={who[name]}
            write={write}
            reason={who.missing?.[name === 'wait' ? 'compute' : name]}
          />
        </td>
      ))}
    </tr>
  );
}
