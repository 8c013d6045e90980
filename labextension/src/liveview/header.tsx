/** What the job is now: its state, how far it is, its numbers, and why it failed. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import * as formats from '../formats';
import { Icon } from '../icons';
import type { JobEntry } from '../schema';
import type { SeriesStore } from '../series';
import { CommandIDs } from '../tokens';
import { OVER, progressOf, restartLine, saves, stateWord } from '../words';

export interface IHeaderProps {
  job: JobEntry;
  store: SeriesStore;
  isLive: boolean;
  isTab: boolean;
  run: (command: string, args: Record<string, string>) => void;
  can: (command: string) => boolean;
  trans: TranslationBundle;
}

export function Header(props: IHeaderProps): JSX.Element {
  const { job, isLive, isTab, run, can, trans } = props;
  const isOver = OVER.has(job.state);
  const args = { jobId: job.job_id };
  const action = (command: string, label: string, kind = '') =>
    can(command) && (
      <button
        className={`btn ${kind}`}
        aria-disabled={!isLive}
        title={
          isLive ? undefined : trans.__('The Jupyter server does not know it.')
        }
        onClick={() => isLive && run(command, args)}
      >
        {label}
      </button>
    );
  return (
    <div className="mnt-head">
      <div className="mnt-head-row">
        <span className="nw">
          <Icon name={job.state} /> {stateWord(job.state, trans)}
        </span>
        <span className="mnt-head-name">{job.name}</span>
        <span className="m s">{identity(job, props.store, trans)}</span>
        <span className="sp" />
        {action(CommandIDs.logs, trans.__('Logs'))}
        {saves(job) && action(CommandIDs.save, trans.__('Save'))}
        {!isOver && action(CommandIDs.stop, trans.__('Stop'))}
        {!isOver && action(CommandIDs.kill, trans.__('Kill'), 'dan')}
        {isOver && action(CommandIDs.launchAgain, trans.__('Launch again'))}
        {!isTab && can(CommandIDs.attach) && isLive && (
          <button
            className="btn ico"
            aria-label={trans.__('Open as a tab')}
            title={trans.__('Open as a tab')}
            onClick={() => run(CommandIDs.attach, args)}
          >
            <Icon name="tab" />
          </button>
        )}
      </div>
      <Progress job={job} trans={trans} />
    </div>
  );
}

function identity(
  job: JobEntry,
  store: SeriesStore,
  trans: TranslationBundle
): string {
  const parts = [job.job_id];
  if (job.attempt > 0) {
    parts.push(trans.__('attempt %1', job.attempt));
  }
  const stages = new Set(
    store.sorted.map(({ who }) => (who.stages ?? []).join(','))
  );
  if (store.ranks.size > 8) {
    const replicas = store.ranks.size / Math.max(1, stages.size);
    parts.push(
      stages.size > 1
        ? trans.__(
            '%1 ranks: %2 stages × %3 replicas',
            store.ranks.size,
            stages.size,
            replicas
          )
        : trans.__('%1 ranks', store.ranks.size)
    );
  }
  return parts.join(', ');
}

function Progress(props: {
  job: JobEntry;
  trans: TranslationBundle;
}): JSX.Element {
  const { job, trans } = props;
  const { step, total_steps, elapsed_s, remaining_s } = job.numbers;
  const share = progressOf(job);
  return (
    <>
      {share !== null && (
        <div
          className="mnt-progress"
          role="progressbar"
          aria-label={trans.__('Steps')}
          aria-valuemin={0}
          aria-valuemax={total_steps ?? 0}
          aria-valuenow={step ?? 0}
        >
          <span style={{ width: `${100 * share}%` }} />
        </div>
      )}
      <div className="mnt-facts">
        {(step ?? 0) > 0 && (
          <span>
            <span className="b">
              {trans.__('step %1', formats.count(step))}
            </span>
            {total_steps ? trans.__(' of %1', formats.count(total_steps)) : ''}
          </span>
        )}
        {typeof elapsed_s === 'number' && (
          <span>{trans.__('elapsed %1', formats.duration(elapsed_s))}</span>
        )}
        {typeof remaining_s === 'number' && !OVER.has(job.state) && (
          <span>
            {trans.__(
              'done %1, in %2',
              formats.clock(Date.now() / 1000 + remaining_s),
              formats.duration(remaining_s)
            )}
          </span>
        )}
      </div>
    </>
  );
}

export function Numbers(props: {
  job: JobEntry;
  store: SeriesStore;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { job, store, trans } = props;
  const { numbers } = job;
  if (!numbers.step) {
    return null;
  }
  const shown: [string, string][] = [
    [trans.__('tok/s'), formats.rate(numbers.tokens_per_s)],
    [trans.__('job MFU'), formats.percent(numbers.mfu)],
    [trans.__('step'), formats.seconds(numbers.step_s)],
    [trans.__('not computing'), formats.percent(numbers.bubble)],
    [trans.__('busiest link'), busiestLink(store)],
    [trans.__('loss'), formats.loss(numbers.loss)]
  ];
  if (typeof numbers.evaluation_loss === 'number') {
    shown.push([trans.__('evaluation'), formats.loss(numbers.evaluation_loss)]);
  }
  return (
    <dl className="mnt-numbers">
      {shown.map(([label, value]) => (
        <div key={label}>
          <dt className="m s">{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function busiestLink(store: SeriesStore): string {
  let most = NaN;
  let isShare = true;
  for (const { link, table } of store.links.values()) {
    const load = Math.max(
      table.recent('sent') || 0,
      table.recent('received') || 0
    );
    const capacity = link.capacity_bytes_per_s;
    isShare = isShare && typeof capacity === 'number';
    const value = isShare ? load / capacity! : load;
    most = value > most || Number.isNaN(most) ? value : most;
  }
  return isShare && !(most < 0.001)
    ? formats.percent(most)
    : isShare
      ? formats.percent(most, 2)
      : formats.bitRate(most);
}

/** What every rank does before its first step. */
export function Starting(props: {
  job: JobEntry;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { job, trans } = props;
  if (OVER.has(job.state) || (job.numbers.step ?? 0) > 0) {
    return null;
  }
  return (
    <ul className="mnt-starting">
      {job.ranks.slice(0, 64).map(rank => (
        <li key={rank.rank}>
          <Icon name={rank.state} size={12} />{' '}
          <span className="b">{trans.__('rank %1', rank.rank)}</span>{' '}
          <span className="m">{rank.node}</span>{' '}
          {rank.activity ?? stateWord(rank.state, trans)}
          {typeof rank.progress === 'number' &&
            `, ${formats.percent(rank.progress, 0)}`}
        </li>
      ))}
    </ul>
  );
}

/** Why a running job does not get on, what to do, and each rank's stacks folded below. */
export function StallCard(props: {
  job: JobEntry;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { job, trans } = props;
  const { stall } = job;
  if (!stall) {
    return null;
  }
  const stacks = job.parts.flatMap(part =>
    (part.stall?.stacks ?? []).map(stack => ({ node: part.node, stack }))
  );
  return (
    <section className="mnt-card mnt-card-stall" role="alert">
      <p className="mnt-card-cause">
        <Icon name="warning" /> {stall.summary}
      </p>
      <p>{trans.__('Fix: %1', stall.fix)}</p>
      <p className="m s">
        {trans.__('no progress since %1', formats.clock(stall.since_s, true))}
      </p>
      {stacks.map(({ node, stack }) => (
        <details key={stack.rank}>
          <summary>
            {trans.__('rank %1 on %2: %3', stack.rank, node, stack.doing)}
            {stack.where ? `, ${stack.where}` : ''}
          </summary>
          <pre tabIndex={0}>{stack.text || trans.__('It told no stacks.')}</pre>
        </details>
      ))}
    </section>
  );
}

/** Line 1: node, cause, fix; the evidence folded below. */
export function FailureCard(props: {
  job: JobEntry;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { job, trans } = props;
  const { cause, cause_node: node } = job;
  if (!cause) {
    return null;
  }
  const others = job.parts.filter(
    part => part.cause && part.cause.summary !== cause.summary
  );
  const leftovers = job.parts.flatMap(part =>
    (part.leftovers ?? []).map(left => ({ node: part.node, left }))
  );
  return (
    <section className="mnt-card" role="alert">
      <p className="mnt-card-cause">
        <Icon name="failed" /> {node ? `${node}: ` : ''}
        {cause.summary}
      </p>
      <p className="m s">
        {trans.__('at %1', formats.clock(cause.time_s, true))}
        {typeof cause.rank === 'number' &&
          `, ${trans.__('rank %1', cause.rank)}`}
      </p>
      {cause.fix && <p>{trans.__('Fix: %1', cause.fix)}</p>}
      {job.restart && <p>{restartLine(job, trans)}</p>}
      {leftovers.map(({ node: where, left }) => (
        <p key={`${where}-${left.pid}`}>
          {trans.__(
            '%1: process %2 (%3) would not die: %4',
            where,
            left.pid,
            left.command,
            left.status
          )}
        </p>
      ))}
      {cause.detail && (
        <details>
          <summary>{trans.__('What the rank wrote last')}</summary>
          <pre tabIndex={0}>{cause.detail}</pre>
        </details>
      )}
      {others.length > 0 && (
        <details>
          <summary>
            {trans._n(
              'What followed on %1 other node',
              'What followed on %1 other nodes',
              others.length
            )}
          </summary>
          <ul>
            {others.map(part => (
              <li key={part.node_id}>
                {part.node}: {part.cause!.summary}
              </li>
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}
