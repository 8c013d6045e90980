/** What the doctor found, as rows: a check by node, worst first. Pure. */

import * as formats from '../formats';
import { problemText } from '../problem';
import type { DoctorAnswer, Finding } from '../schema';
import { trans } from '../trans';

export type Level = Finding['level'];

/** Worst first. */
export const LEVELS: ReadonlyArray<Level> = [
  'stops',
  'slows',
  'unknown',
  'passed'
];

export interface IRow {
  id: string;
  title: string;
  /** Worst level on any node. */
  level: Level;
  /** The worst on each node; none where the check does not concern it. */
  cells: (Finding | undefined)[];
  /** All that it did not pass. */
  found: Finding[];
}

const rank = ({ level }: { level: Level }) => LEVELS.indexOf(level);
const worst = (found: Finding[]) =>
  [...found].sort((a, b) => rank(a) - rank(b))[0];

export function rowsOf({ report, checks }: DoctorAnswer): IRow[] {
  return checks
    .flatMap(({ id, title }) => {
      const all = report.findings.filter(one => one.check === id);
      const cells = report.nodes.map(node =>
        worst(all.filter(one => one.node === node))
      );
      const found = all.filter(one => one.level !== 'passed');
      return all.length
        ? [{ id, title, level: worst(all).level, cells, found }]
        : [];
    })
    .sort((a, b) => rank(a) - rank(b) || b.found.length - a.found.length);
}

/** Number of checks at a level: 2 stop a launch. */
export function counted(level: Level, count: number): string {
  switch (level) {
    case 'stops':
      return trans._n('%1 stops a launch', '%1 stop a launch', count);
    case 'slows':
      return trans.__('%1 may slow it down', count);
    case 'unknown':
      return trans.__('%1 unknown', count);
    default:
      return trans.__('%1 passed', count);
  }
}

/** Counts of rows, worst first, without zeros. */
export function counts(rows: IRow[]): [Level, string][] {
  return LEVELS.flatMap((level): [Level, string][] => {
    const { length } = rows.filter(one => one.level === level);
    return length ? [[level, counted(level, length)]] : [];
  });
}

/** How many nodes and checks, how long it took, and when. */
export function extent({ report }: DoctorAnswer, rows: IRow[]): string {
  const { nodes, took_s, time_s } = report;
  return [
    trans._n('%1 node', '%1 nodes', nodes.length),
    trans._n('%1 check', '%1 checks', rows.length),
    trans.__('took %1', formats.seconds(took_s)),
    formats.clock(time_s)
  ].join(', ');
}

/** Split a fix that ends in a command for a root shell: the text before it, and the command. */
export function splitFix(fix: string): [before: string, command: string] {
  const [, before, command] = /^(.*?\bon \S+: )(sudo [^;]+)$/.exec(fix) ?? [];
  return command ? [before.trim(), command] : [fix, ''];
}

const MARKS: Record<Level, string> = {
  stops: '✕',
  slows: '!',
  unknown: '?',
  passed: '✓'
};

/** The whole report, as text for an issue or a chat. */
export function reportText(examination: DoctorAnswer): string {
  const rows = rowsOf(examination);
  const { silent } = examination.report;
  return [
    trans.__('Doctor: %1', extent(examination, rows)),
    counts(rows)
      .map(([, words]) => words)
      .join(', '),
    ...rows.flatMap(row => [
      `${MARKS[row.level]} ${row.title}`,
      ...row.found.map(
        one => `  ${one.problem ? problemText(one.problem) : one.said}`
      )
    ]),
    ...Object.entries(silent).map(
      ([node, problem]) => `? ${problemText({ ...problem, node })}`
    )
  ].join('\n');
}
