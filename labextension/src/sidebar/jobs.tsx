/** Jobs: how far each is, rank by rank, and what can be done with it. */

import * as React from 'react';

import { copy } from '../clipboard';
import { cellForJob } from '../cells';
import * as formats from '../formats';
import { Icon } from '../icons';
import type { JobEntry, RankNumbers } from '../schema';
import { CommandIDs } from '../tokens';
import {
  causeLine,
  OVER,
  progressOf,
  restartLine,
  savedStep,
  saves,
  stateWord
} from '../words';
import { type IContext, menuKeys, RowMenu } from './parts';

/** From here on cells without numbers, in rows. */
const MANY_RANKS = 17;
const ROW = 16;

/** Ended jobs stay in the list, the newest of them. */
const MOST_ENDED = 10;

export function Jobs(props: IContext): JSX.Element {
  const { model, trans } = props;
  const open = model.jobs.filter(job => !OVER.has(job.state));
  const ended = model.jobs.filter(job => OVER.has(job.state));
  const [isAll, setAll] = React.useState(false);
  const shown = [...open, ...(isAll ? ended : ended.slice(0, MOST_ENDED))];
  if (shown.length === 0) {
    return (
      <p className="mnt-indent m">
        {trans.__('Nothing has run yet. Launch a recipe, or run a cell with')}{' '}
        <code>%%mntrain launch</code>.
      </p>
    );
  }
  return (
    <>
      <ul className="mnt-list">
        {shown.map(job => (
          <Job key={job.job_id} job={job} {...props} />
        ))}
      </ul>
      {ended.length > MOST_ENDED && !isAll && (
        <p className="mnt-indent">
          <button className="mnt-textlink" onClick={() => setAll(true)}>
            {trans.__('Show all %1', model.jobs.length)}
          </button>
        </p>
      )}
    </>
  );
}

function Job(props: IContext & { job: JobEntry }): JSX.Element {
  const { job, commands, trans, insert, drag } = props;
  const [hasMenu, setMenu] = React.useState(false);
  const isOver = OVER.has(job.state);
  const args = { jobId: job.job_id };
  const run = (command: string) => () => void commands.execute(command, args);
  const share = progressOf(job);
  const cause = causeLine(job);
  const { numbers } = job;
  const isKnown = (numbers.step ?? 0) > 0;
  const items = [
    {
      label: trans.__('Insert cell for %1', job.name),
      run: () => insert(cellForJob(job))
    },
    { label: trans.__('Copy spec'), run: run(CommandIDs.copySpec) },
    {
      label: trans.__('Copy id'),
      run: () => void copy(job.job_id)
    },
    { label: trans.__('Launch again'), run: run(CommandIDs.launchAgain) }
  ];
  return (
    <li
      className="mnt-job"
      data-state={job.state}
      {...menuKeys(() => setMenu(true))}
    >
      <div
        className="mnt-row-head"
        onMouseDown={event => drag(event, job.name, cellForJob(job))}
      >
        <span className="mnt-job-name">
          <Icon name={job.state} /> <span className="mnt-name">{job.name}</span>{' '}
          <span>{stateLine(job, trans)}</span>
        </span>
        <RowMenu
          label={trans.__('More for %1', job.name)}
          items={items}
          isOpen={hasMenu}
          setOpen={setMenu}
        />
      </div>
      <div className="mnt-indent">
        {cause && <p className="mnt-cause">{cause}</p>}
        {share !== null && !isOver && (
          <div
            className="mnt-progress"
            role="progressbar"
            aria-label={trans.__('Steps of %1', job.name)}
            aria-valuemin={0}
            aria-valuemax={100}
            aria-valuenow={Math.round(100 * share)}
          >
            <span style={{ width: `${100 * share}%` }} />
          </div>
        )}
        {isKnown && (
          <p className="s">
            {numbers.total_steps
              ? trans.__(
                  'step %1 of %2',
                  formats.count(numbers.step),
                  formats.count(numbers.total_steps)
                )
              : trans.__('step %1', formats.count(numbers.step))}
            {savedStep(job) !== null &&
              `, ${trans.__('saved at %1', formats.count(savedStep(job)))}`}
            {typeof numbers.remaining_s === 'number' &&
              `, ${trans.__(
                'done %1',
                formats.clock(Date.now() / 1000 + numbers.remaining_s)
              )}`}
            <br />
            {formats.rate(numbers.tokens_per_s)} tok/s, MFU{' '}
            {formats.percent(numbers.mfu)}, {trans.__('loss')}{' '}
            {formats.loss(numbers.loss)}
            {typeof numbers.evaluation_loss === 'number' &&
              `, ${trans.__('evaluation')} ${formats.loss(numbers.evaluation_loss)}`}
          </p>
        )}
        {!isKnown && !isOver && !job.restart && (
          <Activities job={job} trans={trans} />
        )}
        <Ranks {...props} />
        <div className="mnt-buttons">
          <button className="btn" onClick={run(CommandIDs.attach)}>
            {trans.__('Attach')}
          </button>
          <button className="btn" onClick={run(CommandIDs.logs)}>
            {trans.__('Logs')}
          </button>
          {isOver ? (
            <button className="btn" onClick={run(CommandIDs.launchAgain)}>
              {trans.__('Launch again')}
            </button>
          ) : (
            <>
              {saves(job) && (
                <button
                  className="btn"
                  title={trans.__('Save a checkpoint after this step')}
                  onClick={run(CommandIDs.save)}
                >
                  {trans.__('Save')}
                </button>
              )}
              <button
                className="btn"
                aria-disabled={job.state === 'stopping'}
                onClick={
                  job.state === 'stopping' ? undefined : run(CommandIDs.stop)
                }
              >
                {job.state === 'stopping'
                  ? trans.__('Stopping…')
                  : trans.__('Stop')}
              </button>
              <button className="btn dan" onClick={run(CommandIDs.kill)}>
                {trans.__('Kill')}
              </button>
            </>
          )}
        </div>
      </div>
    </li>
  );
}

function stateLine(job: JobEntry, trans: IContext['trans']): string {
  const word = stateWord(job.state, trans);
  const ends = job.parts
    .map(part => part.ended_s ?? 0)
    .filter(ended => ended > 0);
  if (OVER.has(job.state) && ends.length) {
    return `${word} ${formats.clock(Math.max(...ends))}`;
  }
  const restart = restartLine(job, trans);
  if (restart) {
    return restart;
  }
  const unknown = job.ranks.filter(rank => rank.state === 'unknown').length;
  return unknown
    ? `${word}, ${trans._n('%1 rank unknown', '%1 ranks unknown', unknown)}`
    : word;
}

function Activities(props: {
  job: JobEntry;
  trans: IContext['trans'];
}): JSX.Element | null {
  const busy = props.job.ranks.find(rank => rank.activity);
  return busy ? (
    <p className="s">
      {props.trans.__('rank %1 %2', busy.rank, busy.activity!)}
      {typeof busy.progress === 'number' &&
        `, ${formats.percent(busy.progress, 0)}`}
    </p>
  ) : null;
}

function Ranks(props: IContext & { job: JobEntry }): JSX.Element {
  const { job, commands, trans } = props;
  const label = (rank: RankNumbers) =>
    trans.__('Log of rank %1, %2', rank.rank, stateWord(rank.state, trans));
  const logs = (rank: RankNumbers) => () =>
    void commands.execute(CommandIDs.logs, {
      jobId: job.job_id,
      rank: rank.rank
    });
  if (job.ranks.length >= MANY_RANKS) {
    const counts = new Map<string, number>();
    for (const rank of job.ranks) {
      counts.set(rank.state, (counts.get(rank.state) ?? 0) + 1);
    }
    return (
      <>
        <p className="s">
          {[...counts]
            .map(([state, count]) => `${count} ${stateWord(state, trans)}`)
            .join(', ')}
        </p>
        <div
          className="mnt-grid"
          role="img"
          aria-label={trans.__('%1 ranks, %2 in a row', job.ranks.length, ROW)}
        >
          {job.ranks.map(rank => (
            <span
              key={rank.rank}
              className={`mnt-cell mnt-state-${rank.state}`}
              title={label(rank)}
            >
              {rank.state === 'failed'
                ? '✕'
                : rank.state === 'unknown'
                  ? '?'
                  : ''}
            </span>
          ))}
        </div>
      </>
    );
  }
  const byNode = new Map<string, RankNumbers[]>();
  for (const rank of job.ranks) {
    byNode.set(rank.node, [...(byNode.get(rank.node) ?? []), rank]);
  }
  return (
    <div className="mnt-ranks">
      {[...byNode].map(([node, ranks]) => (
        <div key={node}>
          <div className="m s">{node}</div>
          {ranks.map(rank => (
            <button
              key={rank.rank}
              className={`mnt-rank mnt-state-${rank.state}`}
              aria-label={label(rank)}
              title={label(rank)}
              onClick={logs(rank)}
            >
              {rank.rank} <Icon name={rank.state} size={12} />
            </button>
          ))}
        </div>
      ))}
    </div>
  );
}
