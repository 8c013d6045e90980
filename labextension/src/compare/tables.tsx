/** Charts of compared runs as tables: their values at some places of the axis. */

import * as React from 'react';

import { ABSENT } from '../formats';
import type { Axis } from '../liveview/axis/axis';
import type { Range } from '../liveview/axis/range';
import { axisNames, type ISampleWords } from '../liveview/axis/ticks';
import { align, readingAt } from '../liveview/charts/align';
import type { IChart, ILine } from '../liveview/charts/chart';
import { Table } from '../liveview/tables/table';
import { Measured } from '../measured';
import type { IRun } from '../runs/run';
import { trans } from '../trans';

/** Rows of a table: enough to see a trend. */
const ROWS = 13;

/** At most so many of the samples within a range, its ends among them, and those of lines. Pure. */
export function placesOf(
  xs: Float64Array,
  [from, to]: Range,
  most: number,
  ends: ReadonlyArray<number> = []
): number[] {
  const inside = xs.filter(x => x >= from && x <= to);
  const count = Math.min(most, inside.length);
  const even = Array.from(
    { length: count },
    (_, i) => inside[Math.round((i * (inside.length - 1)) / (count - 1 || 1))]
  );
  const own = ends.filter(x => x >= from && x <= to);
  return [...new Set([...even, ...own])].sort((a, b) => a - b);
}

/** A run's values at these places; `undefined` before its start and after its end. Pure. */
export function valuesAt(
  { breaks }: Pick<IChart, 'breaks'>,
  line: ILine,
  places: ReadonlyArray<number>
): (number | string | undefined)[] {
  const data = align([line]);
  const end = line.x[line.x.length - 1];
  return places.map(place => {
    const { value, broken } = readingAt(
      { lines: [line], breaks },
      line,
      data,
      place
    );
    const known = Number.isNaN(value) ? undefined : value;
    return place > end ? undefined : (broken ?? known);
  });
}

export function Tables(props: {
  charts: IChart[];
  axis: Axis;
  span: Range;
  words: ISampleWords;
  runs: ReadonlyArray<{ letter: string; run: IRun }>;
}): JSX.Element {
  const { charts, axis, span, words, runs } = props;
  const drawn = charts
    .flatMap(chart => chart.lines)
    .filter(one => !one.isQuiet);
  // The last value of a run is what one looks for first.
  const ends = drawn.flatMap(({ x }) => Array.from(x.slice(-1)));
  const places = placesOf(axis.xs, span, ROWS, ends);
  const names = new Map(runs.map(one => [one.letter, one.run.newest.name]));
  const word = (x: number) =>
    words.sample({ x, time: NaN, step: NaN, tokens: NaN });
  return (
    <div className="mnt-tables mnt-compare-tables">
      {charts.map(chart => {
        const lines = chart.lines.filter(line => !line.isQuiet);
        const columns = [
          axisNames()[axis.kind],
          ...lines.map(({ key }) => `${key} ${names.get(key)}`)
        ];
        const values = lines.map(line => valuesAt(chart, line, places));
        return lines.length ? (
          <Table
            key={chart.key}
            caption={chart.title}
            columns={columns.map(name => ({ name }))}
            rows={places.map((place, row) => ({
              key: String(place),
              cells: [
                { shown: word(place), value: place },
                ...values.map(each => ({
                  shown: <Value value={each[row]} write={chart.format} />,
                  value: each[row]
                }))
              ]
            }))}
          />
        ) : (
          <p key={chart.key} className="m">
            {chart.note}
          </p>
        );
      })}
    </div>
  );
}

function Value(props: {
  value: number | string | undefined;
  write: (value: number) => string;
}): JSX.Element {
  const { value, write } = props;
  return typeof value === 'string' ? (
    <span className="mnt-alarm">{value}</span>
  ) : (
    <Measured
      value={value}
      write={one => (one === undefined ? ABSENT : write(one))}
      reason={trans.__('This run has no step here.')}
    />
  );
}
