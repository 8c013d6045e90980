/** Rank table: recent figures of every rank. */

import * as React from 'react';

import * as formats from '../../formats';
import { Measured } from '../../measured';
import type { IRankRows } from '../../series/store';
import { ranksOf, stateWord } from '../../words';
import type { IViewProps } from '../props';
import { type IColumn, type IRow, Table } from './table';
import { trans } from '../../trans';

const FIGURES = [
  ['tokens_per_s', formats.rate],
  ['pace_tokens_per_s', formats.rate],
  ['mfu', formats.percent],
  ['compute', formats.percent],
  ['wait', formats.percent],
  ['memory_bytes', formats.memory]
] as const;

function columns(): IColumn[] {
  return [
    { name: trans.__('rank') },
    { name: trans.__('node'), term: 'node' },
    { name: trans.__('state') },
    { name: trans.__('pid') },
    { name: trans.__('stage'), term: 'stage' },
    { name: trans.__('step') },
    { name: trans.__('tok/s'), term: 'throughput' },
    { name: trans.__('pace'), term: 'pace' },
    { name: trans.__('MFU'), term: 'MFU' },
    { name: trans.__('computing'), term: 'computing' },
    { name: trans.__('waiting'), term: 'waiting' },
    { name: trans.__('memory') }
  ];
}

export function RankTable({ job, store }: IViewProps): JSX.Element {
  const ranks = new Map(ranksOf(job).map(rank => [rank.rank, rank]));
  const rowOf = ({ who }: IRankRows): IRow => {
    const rank = ranks.get(who.rank);
    const state = stateWord(rank?.state ?? 'unknown');
    const stages = who.stages?.join(', ');
    return {
      key: String(who.rank),
      cells: [
        { shown: who.rank, value: who.rank },
        { shown: who.node, value: who.node },
        { shown: state, value: state },
        { shown: rank?.pid ?? trans.__('n/a'), value: rank?.pid },
        { shown: stages || trans.__('none'), value: stages },
        { shown: formats.count(who.step), value: who.step },
        ...FIGURES.map(([name, write]) => ({
          shown: (
            <Measured
              value={who[name]}
              write={write}
              reason={who.missing?.[name === 'wait' ? 'compute' : name]}
              more={name === 'memory_bytes' ? reserved(who) : undefined}
            />
          ),
          value: who[name]
        }))
      ]
    };
  };
  return (
    <Table
      caption={trans.__('Ranks, recent figures')}
      columns={columns()}
      rows={store.sorted.map(rowOf)}
    />
  );
}

/** GPU memory that torch's allocator has reserved. */
function reserved({
  reserved_bytes: size
}: IRankRows['who']): string | undefined {
  return size
    ? trans.__('reserved by the allocator: %1', formats.memory(size))
    : undefined;
}
