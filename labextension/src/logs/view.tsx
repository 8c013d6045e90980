/** Log view of a job: all ranks or one, with search. */

import { ReactWidget } from '@jupyterlab/apputils';
import * as React from 'react';

import { Alert } from '../alert';
import { copy } from '../clipboard';
import { clock } from '../formats';
import { downloadFrom } from '../liveview/export/download';
import type { LogLine } from '../schema';
import type { IClusterModel } from '../tokens';
import { ranksOf } from '../words';
import { Controls, FIRST_QUERY } from './controls';
import { useLog } from './reading';
import { trans } from '../trans';

/** Scrolled this close to the end, the view follows new lines. */
const NEAR_END_PX = 24;

export interface ILogProps {
  model: IClusterModel;
  jobId: string;
  rank?: number;
}

export function logWidget(props: ILogProps): ReactWidget {
  const widget = ReactWidget.create(<LogView {...props} />);
  widget.addClass('mnt-log-widget');
  return widget;
}

export function LogView(props: ILogProps): JSX.Element {
  const { model, jobId, rank } = props;
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
        download={() =>
          downloadFrom(model.api.logFileUrl(jobId, query.rank), '')
        }
      />
      {problem && <Alert problem={problem} />}
      {log?.is_cut && (
        <p className="m s">
          {trans.__('Only the last %1 lines are shown.', lines.length)}
        </p>
      )}
      <Lines
        label={trans.__('Log of %1', job?.name ?? jobId)}
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

function prefix({ node, rank, time_s }: LogLine): string {
  const when = typeof time_s === 'number' ? `${clock(time_s, true)} ` : '';
  const who = typeof rank === 'number' ? `${node} rank ${rank}` : node;
  return `${when}[${who}] `;
}
