/** Table with a caption; a click on a column's head sorts by it. */

import * as React from 'react';

import { type TermName, meanings } from '../../terms';
import { inOrder, type SortValue } from './order';

export interface IColumn {
  name: string;
  /** Its meaning is a tooltip. */
  term?: TermName;
}

export interface IRow {
  key: string;
  cells: { shown: React.ReactNode; value: SortValue }[];
}

interface ISort {
  column: number;
  isDown: boolean;
}

export function Table(props: {
  caption: string;
  columns: IColumn[];
  rows: IRow[];
}): JSX.Element {
  const { caption, columns, rows } = props;
  const [sort, setSort] = React.useState<ISort | null>(null);
  const shown = sort
    ? inOrder(rows, row => row.cells[sort.column].value, sort.isDown)
    : rows;
  return (
    <table>
      <caption>{caption}</caption>
      <thead>
        <tr>
          {columns.map((column, i) => (
            <Head
              key={column.name}
              {...column}
              sorted={sort?.column === i ? sort.isDown : null}
              sort={isDown => setSort({ column: i, isDown })}
            />
          ))}
        </tr>
      </thead>
      <tbody>
        {shown.map(({ key, cells }) => (
          <tr key={key}>
            {cells.map((cell, i) =>
              i === 0 ? (
                <th key={i} scope="row">
                  {cell.shown}
                </th>
              ) : (
                <td key={i}>{cell.shown}</td>
              )
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Head(
  props: IColumn & {
    /** Whether it is sorted downward; `null` = not by this column. */
    sorted: boolean | null;
    sort: (isDown: boolean) => void;
  }
): JSX.Element {
  const { name, term, sorted, sort } = props;
  const order = sorted === null ? 'none' : sorted ? 'descending' : 'ascending';
  return (
    <th scope="col" aria-sort={order}>
      <button
        className="mnt-sort"
        title={term && meanings()[term]}
        onClick={() => sort(sorted === false)}
      >
        {name}
      </button>
    </th>
  );
}
