/** Ranks of a job: buttons, or a grid with counts if there are many. */

import * as React from 'react';

import { Icon } from '../icons';
import type { JobEntry } from '../schema';
import { CommandIDs } from '../tokens';
import {
  type JobState,
  OVER,
  type PlacedRank,
  ranksOf,
  stateWord
} from '../words';
import { menuKeys, type MenuItem } from './menu';
import type { IContext } from './parts';
import { trans } from '../trans';

/** From this many ranks on: a grid instead of buttons. */
const MANY_RANKS = 17;
const ROW = 16;

const MARKS: Partial<Record<JobState, string>> = {
  failed: '✕',
  unknown: '?'
};

type IRanksProps = IContext & { job: JobEntry };

export function Ranks(props: IRanksProps): JSX.Element {
  const isMany = ranksOf(props.job).length >= MANY_RANKS;
  return isMany ? <RankGrid {...props} /> : <RankButtons {...props} />;
}

function labelOf(rank: PlacedRank): string {
  return trans.__('Log of rank %1, %2', rank.rank, stateWord(rank.state));
}

function RankGrid({ job }: IRanksProps): JSX.Element {
  const ranks = ranksOf(job);
  const counts = new Map<JobState, number>();
  for (const rank of ranks) {
    counts.set(rank.state, (counts.get(rank.state) ?? 0) + 1);
  }
  return (
    <>
      <p className="s">
        {[...counts]
          .map(([state, count]) => `${count} ${stateWord(state)}`)
          .join(', ')}
      </p>
      <div
        className="mnt-grid"
        role="img"
        aria-label={trans.__('%1 ranks, %2 in a row', ranks.length, ROW)}
      >
        {ranks.map(rank => (
          <span
            key={rank.rank}
            className={`mnt-cell mnt-state-${rank.state}`}
            title={labelOf(rank)}
          >
            {MARKS[rank.state] ?? ''}
          </span>
        ))}
      </div>
    </>
  );
}

function RankButtons({ job, commands }: IRanksProps): JSX.Element {
  const open =
    (command: string, { rank }: PlacedRank) =>
    () =>
      void commands.execute(command, { jobId: job.job_id, rank });
  const byNode = new Map<string, PlacedRank[]>();
  for (const rank of ranksOf(job)) {
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
              aria-label={labelOf(rank)}
              title={labelOf(rank)}
              onClick={open(CommandIDs.logs, rank)}
              {...menuKeys([
                [trans.__('Show log'), open(CommandIDs.logs, rank)],
                ...(OVER.has(rank.state)
                  ? []
                  : [
                      [
                        trans.__('Show stacks'),
                        open(CommandIDs.stacks, rank)
                      ] as MenuItem
                    ])
              ])}
            >
              {rank.rank} <Icon name={rank.state} size={12} />
            </button>
          ))}
        </div>
      ))}
    </div>
  );
}
