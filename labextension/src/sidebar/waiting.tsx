/** Waiting launches: what waits in a scheduler's queue, and why. Hidden if nothing waits. */

import * as React from 'react';

import { cellForLaunch } from '../cells';
import { Button } from '../controls';
import { clock } from '../formats';
import { Icon } from '../icons';
import { causeLine, fixLine } from '../problem';
import type { WaitingLaunch } from '../schema';
import { CommandIDs } from '../tokens';
import { trans } from '../trans';
import { type IContext, Section } from './parts';

export function WaitingLaunches(props: IContext): JSX.Element | null {
  const { waiting } = props.model;
  return waiting.length ? (
    <Section
      title={trans.__('Waiting for nodes')}
      note={String(waiting.length)}
    >
      <ul className="mnt-list">
        {waiting.map(launch => (
          <Launch key={launch.cluster} launch={launch} {...props} />
        ))}
      </ul>
    </Section>
  ) : null;
}

type ILaunchProps = IContext & { launch: WaitingLaunch };

const cellFor = ({ job_id, cluster }: WaitingLaunch) =>
  cellForLaunch(job_id ?? cluster);

function Launch(props: ILaunchProps): JSX.Element {
  const { launch, drag } = props;
  const { cluster, name, job_id, nodes, source, allocation } = launch;
  const isHopeless = launch.why?.kind === 'never-granted';
  return (
    <li className="mnt-job">
      <div
        className="mnt-row-head"
        onMouseDown={event => drag(event, name, cellFor(launch))}
      >
        <span className="mnt-job-name">
          <Icon name={isHopeless ? 'warning' : 'pending'} />{' '}
          <span className="mnt-name">{name}</span>
        </span>
      </div>
      <div className="mnt-indent">
        <p className="s">
          {trans._n(
            '%2: %1 node of %3, job %4',
            '%2: %1 nodes of %3, job %4',
            nodes,
            job_id ?? cluster,
            source,
            allocation
          )}
        </p>
        <Reason {...launch} />
        {job_id && (
          <p>{trans.__('The job continues once it has nodes again.')}</p>
        )}
        <Buttons {...props} />
      </div>
    </li>
  );
}

function Reason(launch: WaitingLaunch): JSX.Element {
  const { state, why, word, expected_start_s: start } = launch;
  const fix = why ? fixLine(why) : null;
  return (
    <>
      {state === 'running' && (
        <p>
          {trans.__('Its nodes are granted; no job has started on them yet.')}
        </p>
      )}
      {why && (
        <p className={why.kind === 'never-granted' ? 'mnt-cause' : ''}>
          {causeLine(why)}
          {word && word !== 'None' && <span className="m"> ({word})</span>}
        </p>
      )}
      {fix && <p className="mnt-fix">{fix}</p>}
      {typeof start === 'number' && (
        <p>{trans.__('Expected to start at %1', clock(start))}</p>
      )}
    </>
  );
}

function Buttons(props: ILaunchProps): JSX.Element {
  const { launch, model, commands, insert } = props;
  const { cluster, job_id: jobId } = launch;
  return (
    <div className="mnt-buttons">
      {jobId && model.job(jobId) && (
        <Button
          label={trans.__('Attach')}
          run={() => commands.execute(CommandIDs.attach, { jobId })}
        />
      )}
      <Button
        icon="code"
        label={trans.__('Insert cell')}
        title={trans.__('A cell that follows it')}
        run={() => insert(cellFor(launch))}
      />
      {!model.status?.is_read_only && (
        <Button
          kind="dan"
          label={trans.__('Cancel…')}
          run={() => commands.execute(CommandIDs.cancelLaunch, { cluster })}
        />
      )}
    </div>
  );
}
