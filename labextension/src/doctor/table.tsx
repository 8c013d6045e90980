/** Checks by node; a row opens to causes and fixes. */

import * as React from 'react';

import { Icon, type IconName } from '../icons';
import { causeLine } from '../problem';
import type { Finding } from '../schema';
import { Copyable } from '../sidebar/parts';
import { trans } from '../trans';
import { Mending, RemedyButton } from './remedy';
import { type IRow, type Level, splitFix } from './report';

/** With more nodes, only findings are listed. */
const MOST_COLUMNS = 6;

/** Up to so many findings, a row is open at first. */
const MOST_OPEN = 4;

const ICONS: Record<Level, IconName> = {
  stops: 'failed',
  slows: 'warning',
  unknown: 'unknown',
  passed: 'succeeded'
};

/** Its icon, with the word for screen readers. */
export function Mark({ level }: { level: Level }): JSX.Element {
  const words: Partial<Record<Level, string>> = {
    stops: trans.__('stops a launch:'),
    slows: trans.__('may slow it down:'),
    passed: trans.__('passed:')
  };
  return (
    <>
      <Icon name={ICONS[level]} size={12} />{' '}
      <span className="mnt-visually-hidden">{words[level]} </span>
    </>
  );
}

export function DoctorTable(props: {
  label: string;
  nodes: string[];
  rows: IRow[];
}): JSX.Element {
  const { label, nodes, rows } = props;
  const isLong = nodes.length > MOST_COLUMNS;
  return (
    <div
      role="table"
      aria-label={label}
      className={`mnt-doctor-table${isLong ? ' mnt-listed' : ''}`}
      style={{ '--mnt-nodes': nodes.length } as React.CSSProperties}
    >
      <div role="row" className="mnt-doctor-row mnt-doctor-head">
        <span role="columnheader">{trans.__('check')}</span>
        {nodes.map(node => (
          <span key={node} role="columnheader">
            {node}
          </span>
        ))}
      </div>
      {rows.map(row => (
        <Row key={row.id} row={row} nodes={nodes} />
      ))}
    </div>
  );
}

function Row({ row, nodes }: { row: IRow; nodes: string[] }): JSX.Element {
  const { title, level, cells, found } = row;
  const [isOpen, setOpen] = React.useState(
    level === 'stops' && found.length <= MOST_OPEN
  );
  const name = (
    <>
      <Mark level={level} />
      <span className={level === 'stops' || level === 'slows' ? 'b' : ''}>
        {title}
      </span>
    </>
  );
  return (
    <>
      <div role="row" className="mnt-doctor-row">
        <span role="rowheader">
          {found.length ? (
            <button
              className="mnt-disclose"
              aria-expanded={isOpen}
              onClick={() => setOpen(!isOpen)}
            >
              <Icon name={isOpen ? 'open' : 'closed'} /> {name}
            </button>
          ) : (
            name
          )}
        </span>
        {cells.map((one, i) => (
          <span key={nodes[i]} role="cell" data-level={one?.level}>
            <span className="mnt-doctor-node">{nodes[i]}: </span>
            {one ? (
              <>
                <Mark level={one.level} />
                {one.said}
              </>
            ) : (
              '–'
            )}
          </span>
        ))}
      </div>
      {isOpen && (
        <div role="row" className="mnt-doctor-detail">
          <div role="cell" aria-colspan={nodes.length + 1}>
            {found.map((one, i) => (
              <Found key={i} finding={one} />
            ))}
          </div>
        </div>
      )}
    </>
  );
}

/** Cause and fix, with a root command to copy, and a button that applies the fix. */
function Found({ finding }: { finding: Finding }): JSX.Element {
  const { problem, said, remedy } = finding;
  const mending = React.useContext(Mending);
  const [fix, command] = splitFix(problem?.fix ?? '');
  return (
    <>
      <dl>
        <dt>{trans.__('cause')}</dt>
        <dd>{problem ? causeLine(problem) : said}</dd>
        {fix && (
          <>
            <dt>{trans.__('fix')}</dt>
            <dd>{fix}</dd>
          </>
        )}
      </dl>
      {command && <Copyable text={command} />}
      {remedy && mending && <RemedyButton remedy={remedy} {...mending} />}
    </>
  );
}
