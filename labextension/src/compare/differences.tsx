/** Settings that differ between compared runs. */

import * as React from 'react';

import { Table } from '../liveview/tables/table';
import type { JobComparison } from '../schema';
import { trans } from '../trans';
import { originWords } from '../liveview/settings';

export function Differences(props: {
  differences: JobComparison;
  /** Letter and name of each run. */
  heads: ReadonlyArray<string>;
}): JSX.Element {
  const { differing, same } = props.differences;
  return (
    <section className="mnt-differences">
      {differing.length ? (
        <div className="mnt-tables">
          <Table
            caption={trans.__('Settings that differ')}
            columns={[
              { name: trans.__('setting') },
              ...props.heads.map(name => ({ name }))
            ]}
            rows={differing.map(({ name, values }) => ({
              key: name,
              cells: [
                { shown: name, value: name },
                ...values.map((one, place) => ({
                  shown: (
                    <span
                      className={isOdd(values, place) ? 'b' : ''}
                      title={one ? originWords(one.origin) : undefined}
                    >
                      {one?.value ?? '–'}
                    </span>
                  ),
                  value: one?.value
                }))
              ]
            }))}
          />
        </div>
      ) : (
        <p>{trans.__('All settings are the same.')}</p>
      )}
      {differing.length > 0 && same.length > 0 && (
        <details className="mnt-settings-fold">
          <summary>
            {trans._n(
              '%1 setting is the same',
              '%1 settings are the same',
              same.length
            )}
          </summary>
          <p className="s">{same.join(', ')}</p>
        </details>
      )}
    </section>
  );
}

type Values = JobComparison['differing'][number]['values'];

/** Whether this value is the only one that differs, while the others are equal. */
export function isOdd(values: Values, place: number): boolean {
  const others = values.filter((_, i) => i !== place).map(one => one?.value);
  return (
    others.length > 1 &&
    new Set(others).size === 1 &&
    others[0] !== values[place]?.value
  );
}
