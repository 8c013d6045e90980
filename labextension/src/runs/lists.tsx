/** Lists that narrow the runs: by node, by what they ran, and by age. */

import * as React from 'react';

import { Select } from '../controls';
import { trans } from '../trans';
import type { IQuery } from './query';
import { type IRun, nodesOf, programsOf, programWord } from './run';

const DAY_S = 86_400;

const AGES = [null, DAY_S, 7 * DAY_S, 30 * DAY_S] as const;

export function ageWord(age: number | null): string {
  return age === null
    ? trans.__('any')
    : age === DAY_S
      ? trans.__('24 hours')
      : trans.__('%1 days', age / DAY_S);
}

export function Lists(props: {
  runs: ReadonlyArray<IRun>;
  query: IQuery;
  change: (query: Partial<IQuery>) => void;
}): JSX.Element {
  const { runs, query, change } = props;
  const { node, program, age } = query;
  return (
    <span className="row" role="group" aria-label={trans.__('Narrow')}>
      <Select<string | null>
        label={trans.__('Node')}
        value={node}
        options={choices(runs.flatMap(nodesOf), node, one => one)}
        pick={one => change({ node: one })}
      />
      <Select<string | null>
        label={trans.__('Program')}
        value={program}
        options={choices(runs.flatMap(programsOf), program, programWord)}
        pick={one => change({ program: one })}
      />
      <Select<number | null>
        label={trans.__('Age')}
        value={age}
        options={AGES.map(one => [one, ageWord(one)] as const)}
        pick={one => change({ age: one })}
      />
    </span>
  );
}

/** "Any", and every value; the chosen one stays, even when its last run is gone. */
function choices(
  there: ReadonlyArray<string>,
  chosen: string | null,
  word: (one: string) => string
): (readonly [string | null, string])[] {
  const all = new Set([...there, ...(chosen === null ? [] : [chosen])]);
  return [
    [null, trans.__('any')],
    ...[...all].sort().map(one => [one, word(one)] as const)
  ];
}
