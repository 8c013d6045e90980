/** A node's history as a table: each line's newest, mean, lowest and highest value. */

import * as React from 'react';

import { ABSENT } from '../formats';
import type { IChart, ILine } from '../liveview/charts/chart';
import { trans } from '../trans';

interface IRow {
  chart: IChart;
  line: ILine;
  lowest: ILine;
  highest: ILine;
}

/** Rows for the labeled lines. Pure. */
export function tableRows(charts: IChart[]): IRow[] {
  return charts.flatMap(chart =>
    chart.lines
      .filter(line => !line.isQuiet)
      .map(line => {
        const edge = (name: string) =>
          chart.lines.find(one => one.key === `${line.key}-${name}`) ?? line;
        return { chart, line, lowest: edge('low'), highest: edge('high') };
      })
  );
}

export function HistoryTable({ charts }: { charts: IChart[] }): JSX.Element {
  const heads = [
    trans.__('now'),
    trans.__('mean'),
    trans.__('lowest'),
    trans.__('highest')
  ];
  return (
    <table className="mnt-history-table">
      <thead>
        <tr>
          <th scope="col">{trans.__('figure')}</th>
          {heads.map(head => (
            <th key={head} scope="col">
              {head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {tableRows(charts).map(row => (
          <tr key={row.chart.key + row.line.key}>
            <th scope="row">{`${row.chart.title}, ${row.line.label}`}</th>
            {figures(row).map((value, i) => (
              <td key={i}>
                {Number.isFinite(value) ? row.chart.format(value) : ABSENT}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function figures({ line, lowest, highest }: IRow): number[] {
  const known = (one: ILine) => [...one.y].filter(y => !Number.isNaN(y));
  const size = (one: ILine) => known(one).map(Math.abs);
  const values = size(line);
  return [
    values[values.length - 1] ?? NaN,
    values.reduce((sum, y) => sum + y, 0) / values.length,
    Math.min(...size(lowest)),
    Math.max(...size(highest))
  ];
}
