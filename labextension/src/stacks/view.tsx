/** Stacks of a job: where every rank is now, or one rank. */

import { ReactWidget } from '@jupyterlab/apputils';
import * as React from 'react';

import { Alert } from '../alert';
import { useAsked } from '../asking';
import { copy } from '../clipboard';
import { Button, Select } from '../controls';
import * as formats from '../formats';
import { problemText } from '../problem';
import type { ShownStack, ShownStacks } from '../schema';
import type { IClusterModel } from '../tokens';
import { ranksOf } from '../words';
import { trans } from '../trans';

export interface IStacksProps {
  model: IClusterModel;
  jobId: string;
  rank?: number;
}

export function stacksWidget(props: IStacksProps): ReactWidget {
  const widget = ReactWidget.create(<StacksView {...props} />);
  widget.addClass('mnt-stacks-widget');
  return widget;
}

export function StacksView(props: IStacksProps): JSX.Element {
  const { model, jobId } = props;
  const [rank, pick] = React.useState(props.rank);
  const asking = useAsked(
    () => model.api.stacks(jobId, rank),
    [model, jobId, rank]
  );
  const { answer: stacks, takenAt, problem, isAsking, again } = asking;
  const job = model.job(jobId);
  return (
    <div className="mnt mnt-stacks">
      <div className="mnt-controls">
        <span className="b">{job?.name ?? jobId}</span>
        <Select<number | undefined>
          label={trans.__('Rank')}
          value={rank}
          options={[
            [undefined, trans.__('all')],
            ...(job ? ranksOf(job) : []).map(
              one => [one.rank, `${one.rank}, ${one.node}`] as const
            )
          ]}
          pick={pick}
        />
        <span className="m s" aria-live="polite">
          {isAsking
            ? trans.__('Asking the ranks…')
            : takenAt !== null &&
              trans.__('taken at %1', formats.clock(takenAt, true))}
        </span>
        <span className="sp" />
        <Button label={trans.__('Take again')} isOff={isAsking} run={again} />
        <Button
          label={trans.__('Copy')}
          isOff={!stacks}
          run={() => stacks && void copy(stacksText(stacks))}
        />
      </div>
      {problem && <Alert problem={problem} />}
      {stacks && <Stacks stacks={stacks} />}
    </div>
  );
}

function Stacks({ stacks }: { stacks: ShownStacks }): JSX.Element {
  return (
    <div className="mnt-stacks-list">
      {stacks.problem && <Alert problem={stacks.problem} />}
      {(stacks.silent ?? []).map((one, i) => (
        <Alert key={i} problem={one} />
      ))}
      {stacks.nothing && <p>{stacks.nothing}</p>}
      {stacks.ranks.map(one => (
        <RankStack key={one.rank} stack={one} />
      ))}
    </div>
  );
}

function RankStack({ stack }: { stack: ShownStack }): JSX.Element {
  return (
    <details open>
      <summary>{stack.said}</summary>
      <pre tabIndex={0} aria-label={trans.__('Stack of rank %1', stack.rank)}>
        {stack.text}
      </pre>
      {stack.threads && (
        <details>
          <summary>{trans.__('Other threads')}</summary>
          <pre tabIndex={0}>{stack.threads}</pre>
        </details>
      )}
    </details>
  );
}

/** All stacks, as text for an issue or a chat. */
export function stacksText(stacks: ShownStacks): string {
  const { problem, silent, nothing, ranks } = stacks;
  return [
    ...[...(problem ? [problem] : []), ...(silent ?? [])].map(problemText),
    ...(nothing ? [nothing] : []),
    ...ranks.map(({ said, text, threads }) =>
      [said, ...(threads ? [threads] : []), text].join('\n')
    )
  ].join('\n\n');
}
