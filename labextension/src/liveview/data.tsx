/** Data: what a job trains on, and its first sequences with what is learned marked. */

import * as React from 'react';

import * as formats from '../formats';
import type { DataPreview, ShownSequence, TokenRun } from '../schema';
import { trans } from '../trans';

export function DataFold(props: { data: DataPreview }): JSX.Element {
  const { summary = [], count = 0, sequences = [] } = props.data;
  return (
    <details className="mnt-data-fold">
      <summary>{trans.__('Data')}</summary>
      {summary.map((line, i) => (
        <p key={i} dir="auto">
          {line}
        </p>
      ))}
      {sequences.length > 0 && (
        <p>
          {trans.__(
            'The first %1 of %2 sequences:',
            sequences.length,
            formats.count(count)
          )}{' '}
          <mark>{trans.__('learned')}</mark>,{' '}
          <code>{trans.__('special token')}</code>
        </p>
      )}
      {sequences.map((one, i) => (
        <Sequence key={i} number={i + 1} one={one} />
      ))}
    </details>
  );
}

function Sequence(props: { number: number; one: ShownSequence }): JSX.Element {
  const { number, one } = props;
  const title = trans.__('Sequence %1', number);
  const figures = [
    trans._n(
      '%2 document',
      '%2 documents',
      one.documents,
      formats.count(one.documents)
    ),
    trans.__('%1 tokens', formats.count(one.tokens)),
    one.padding && trans.__('%1 of padding', formats.count(one.padding)),
    one.learned === one.tokens
      ? trans.__('all learned')
      : trans.__('%1 learned', formats.count(one.learned))
  ];
  return (
    <article aria-label={title}>
      <h5>
        {title}: {figures.filter(Boolean).join(', ')}
      </h5>
      <div className="mnt-sequence" dir="auto">
        {(one.runs ?? []).map((run, i) => (
          <Run key={i} run={run} marks={one.learned < one.tokens} />
        ))}
      </div>
    </article>
  );
}

/** If all tokens are learned, marks are left out. */
function Run(props: { run: TokenRun; marks: boolean }): JSX.Element {
  const { run, marks } = props;
  const said = between(run);
  if (said !== null) {
    return <span className="mnt-between">{said}</span>;
  }
  const shown =
    run.kind === 'special' ? (
      <code>{run.text}</code>
    ) : run.kind === 'left-out' ? (
      <i>{` … ${tokens(run)} … `}</i>
    ) : (
      <>{run.text}</>
    );
  return marks && run.is_learned ? <mark>{shown}</mark> : shown;
}

/** Text on its own line; `null` for tokens. */
function between(run: TokenRun): string | null {
  switch (run.kind) {
    case 'begun':
      return trans.__('it began in another sequence');
    case 'end':
      return trans.__('end of the document');
    case 'cut':
      return trans.__('cut: it continues in another sequence');
    case 'left-out':
      return run.documents
        ? trans.__(
            '%1 documents, %2',
            formats.count(run.documents),
            tokens(run)
          )
        : null;
    default:
      return null;
  }
}

function tokens(run: TokenRun): string {
  return trans.__('%1 tokens', formats.count(run.tokens ?? 0));
}
