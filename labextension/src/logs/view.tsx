/** The log of a job: merged or of one rank, followed, searched. */

import { ReactWidget } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { copy } from '../clipboard';
import type { JobLog } from '../schema';
import { type IClusterModel, RequestError } from '../tokens';
import { OVER } from '../words';

const EVERY_MS = 2000;
const TAILS = [200, 1000, 5000];

/** Letters that are typed one after the other are searched for together. */
const TYPING_MS = 300;

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
  const { model, jobId, trans } = props;
  const [rank, setRank] = React.useState<number | undefined>(props.rank);
  const [tail, setTail] = React.useState(TAILS[1]);
  const [typed, setTyped] = React.useState('');
  const [search, setSearch] = React.useState('');
  const [isFollowing, setFollowing] = React.useState(true);
  const [log, setLog] = React.useState<JobLog | null>(null);
  const [problem, setProblem] = React.useState<string | null>(null);
  const list = React.useRef<HTMLPreElement>(null);
  const job = model.job(jobId);

  React.useEffect(() => {
    const timer = window.setTimeout(() => setSearch(typed), TYPING_MS);
    return () => window.clearTimeout(timer);
  }, [typed]);

  React.useEffect(() => {
    let isOver = false;
    let timer = 0;
    const read = async () => {
      try {
        const read = await model.api.log(jobId, { rank, tail, search });
        if (!isOver) {
          setLog(read);
          setProblem(null);
        }
      } catch (error) {
        if (!isOver) {
          const hint = error instanceof RequestError ? error.hint : null;
          setProblem(`${(error as Error).message}${hint ? ` ${hint}` : ''}`);
        }
      }
      const ended = OVER.has(model.job(jobId)?.state ?? '');
      if (!isOver && isFollowing && !ended) {
        timer = window.setTimeout(read, document.hidden ? 10_000 : EVERY_MS);
      }
    };
    void read();
    return () => {
      isOver = true;
      window.clearTimeout(timer);
    };
  }, [jobId, rank, tail, search, isFollowing, job?.state]);

  // At the end it stays at the end; elsewhere it stays where one reads.
  const wasAtEnd = React.useRef(true);
  React.useLayoutEffect(() => {
    if (list.current && wasAtEnd.current) {
      list.current.scrollTop = list.current.scrollHeight;
    }
  }, [log]);
  const onScroll = () => {
    const node = list.current!;
    wasAtEnd.current =
      node.scrollHeight - node.scrollTop - node.clientHeight < 24;
  };

  const lines = log?.lines ?? [];
  const text = lines.map(line => prefix(line) + line.text).join('\n');
  return (
    <div className="mnt mnt-log">
      <div className="mnt-controls">
        <span className="b">{job?.name ?? jobId}</span>
        <label className="s">
          {trans.__('Rank')}{' '}
          <select
            value={rank ?? ''}
            onChange={event =>
              setRank(
                event.target.value === ''
                  ? undefined
                  : Number(event.target.value)
              )
            }
          >
            <option value="">{trans.__('all, merged')}</option>
            {(job?.ranks ?? []).map(one => (
              <option key={one.rank} value={one.rank}>
                {`${one.rank}, ${one.node}`}
              </option>
            ))}
          </select>
        </label>
        <label className="s">
          {trans.__('Search')}{' '}
          <input
            type="search"
            value={typed}
            onChange={event => setTyped(event.target.value)}
          />
        </label>
        <label className="s">
          {trans.__('Lines')}{' '}
          <select
            value={tail}
            onChange={event => setTail(Number(event.target.value))}
          >
            {TAILS.map(number => (
              <option key={number} value={number}>
                {number}
              </option>
            ))}
          </select>
        </label>
        <label className="s">
          <input
            type="checkbox"
            checked={isFollowing}
            onChange={event => setFollowing(event.target.checked)}
          />{' '}
          {trans.__('Follow')}
        </label>
        <span className="sp" />
        <button className="btn" onClick={() => void copy(text)}>
          {trans.__('Copy')}
        </button>
      </div>
      {problem && (
        <p role="alert" className="mnt-cause">
          {problem}
        </p>
      )}
      {log?.is_cut && (
        <p className="m s">
          {trans.__(
            'There is more; these are the last %1 lines.',
            lines.length
          )}
        </p>
      )}
      <pre
        ref={list}
        tabIndex={0}
        aria-label={trans.__('Log of %1', job?.name ?? jobId)}
        onScroll={onScroll}
      >
        {lines.length
          ? text
          : log
            ? search
              ? trans.__('No line contains “%1”.', search)
              : trans.__('Nothing yet.')
            : trans.__('Reading…')}
      </pre>
    </div>
  );
}

function prefix(line: { node: string; rank?: number | null }): string {
  return typeof line.rank === 'number'
    ? `[${line.node} rank ${line.rank}] `
    : `[${line.node}] `;
}
