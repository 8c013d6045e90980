/** Log view of a job: all ranks or one, with search. */

import { ReactWidget } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { copy } from '../clipboard';
import { ProblemLines } from '../problem';
import type { JobEntry, LogLine } from '../schema';
import type { IClusterModel } from '../tokens';
import { ranksOf } from '../words';
import { Controls, FIRST_QUERY } from './controls';
import { useLog } from './reading';

/** Scrolled this close to the end, the view follows new lines. */
const NEAR_END_PX = 24;

export interface ILogProps {
  model: IClusterModel;
  jobId: string;
  rank?: number;
  trans: TranslationBundle;
}

export class LogWidget extends ReactWidget {
  constructor(readonly props: ILogProps) {
    super();
    this.addClass('mnt-log-widget');
  }

  protected render(): JSX.Element {
    return <LogView {...this.props} />;
  }
}

export function LogView(props: ILogProps): JSX.Element {
  const { model, jobId, rank, trans } = props;
  const [query, setQuery] = React.useState({ ...FIRST_QUERY, rank });
  const { log, problem } = useLog(model, jobId, query);
  const job = model.job(jobId);
  const lines = log?.lines ?? [];
  const text = lines.map(line => prefix(line) + line.text).join('\n');
  const nothing = query.search
    ? trans.__('No line contains “%1”.', query.search)
    : trans.__('No output yet.');
  return (
    <div className="mnt mnt-log">
      <Controls
        title={job?.name ?? jobId}
        ranks={job ? ranksOf(job) : []}
        query={query}
        change={changed => setQuery({ ...query, ...changed })}
        copyAll={() => void copy(text)}
        trans={trans}
      />
      {problem && (
        <div role="alert">
          <ProblemLines problem={problem} trans={trans} />
        </div>
      )}
      {log?.is_cut && (
        <p className="m s">
          {trans.__('Only the last %1 lines are shown.', lines.length)}
        </p>
      )}
      <Lines
        label={labelOf(job, jobId, trans)}
        text={lines.length ? text : log ? nothing : trans.__('Reading…')}
      />
    </div>
  );
}

/** The lines. Scrolled to the end, the view follows new lines. */
function Lines(props: { label: string; text: string }): JSX.Element {
  const list = React.useRef<HTMLPreElement>(null);
  const wasAtEnd = React.useRef(true);
  React.useLayoutEffect(() => {
    if (list.current && wasAtEnd.current) {
      list.current.scrollTop = list.current.scrollHeight;
    }
  }, [props.text]);
  const onScroll = () => {
    const node = list.current!;
    wasAtEnd.current =
      node.scrollHeight - node.scrollTop - node.clientHeight < NEAR_END_PX;
  };
  return (
    <pre ref={list} tabIndex={0} aria-label={props.label} onScroll={onScroll}>
      {props.text}
    </pre>
  );
}

function labelOf(
  job: JobEntry | undefined,
  jobId: string,
  trans: TranslationBundle
): string {
  return trans.__('Log of %1', job?.name ?? jobId);
}

function prefix({ node, rank }: LogLine): string {
  return typeof rank === 'number' ? `[${node} rank ${rank}] ` : `[${node}] `;
}
