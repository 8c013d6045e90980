/** Cluster: state and actions, then nodes, links and jobs. */

import * as React from 'react';

import { NODES } from '../cells';
import { serverClock } from '../clock';
import { Button } from '../controls';
import { duration } from '../formats';
import { Icon } from '../icons';
import { problemText } from '../problem';
import { MOST_DIFFERENCE_S } from '../schema';
import { CommandIDs, type IClusterModel } from '../tokens';
import { trans } from '../trans';
import { OVER } from '../words';
import { Jobs } from './jobs';
import { Links } from './links';
import { type MenuItem, RowMenu } from './menu';
import { Node } from './node';
import { AllSilent, Empty } from './notes';
import { type IContext, Section } from './parts';
import { WaitingLaunches } from './waiting';

export function Cluster(props: IContext): JSX.Element {
  const { model, commands, insert } = props;
  const { nodes, jobs } = model;
  const answering = liveness(model, 'up') + liveness(model, 'suspect');
  const running = jobs.filter(job => !OVER.has(job.state)).length;
  return (
    <>
      <header className="mnt-top">
        <Title {...props} />
        <State {...props} />
        {nodes.length > 0 && (
          <div className="mnt-buttons">
            <Button
              kind="pri"
              label={trans.__('Launch…')}
              run={() => commands.execute(CommandIDs.launch)}
            />
            <Button
              icon="code"
              label={trans.__('Insert cell')}
              run={() => insert(NODES)}
            />
          </div>
        )}
      </header>
      {nodes.length === 0 ? (
        <Empty {...props} />
      ) : (
        <Section title={trans.__('Nodes')} note={String(nodes.length)}>
          {answering === 0 && <AllSilent {...props} />}
          <Nodes {...props} />
        </Section>
      )}
      {nodes.length > 1 && (
        <Section title={trans.__('Links')}>
          <Links {...props} />
        </Section>
      )}
      <WaitingLaunches {...props} />
      <Section
        title={trans.__('Jobs')}
        note={
          running ? trans.__('%1 running', running) : trans.__('none running')
        }
      >
        <Jobs {...props} />
      </Section>
    </>
  );
}

export function Nodes(props: IContext): JSX.Element {
  return (
    <ul className="mnt-list">
      {props.model.nodes.map(node => (
        <Node key={node.key} node={node} {...props} />
      ))}
    </ul>
  );
}

function liveness(model: IClusterModel, state: string): number {
  return model.nodes.filter(node => node.view.liveness === state).length;
}

function Title({ model, commands }: IContext): JSX.Element {
  const name = model.status?.cluster ?? '';
  const run = (command: string) => () => commands.execute(command);
  const invite = trans.__('Invite nodes…');
  const forgetSilent: MenuItem = [
    trans.__('Remove silent nodes from the list'),
    run(CommandIDs.forgetSilent)
  ];
  return (
    <div className="row">
      <h2 className="mnt-cluster">{name}</h2>
      <span className="sp" />
      <Button
        kind="ico"
        icon="add"
        label={invite}
        run={run(CommandIDs.inviteNodes)}
      />
      <RowMenu
        label={trans.__('More for cluster %1', name)}
        items={[
          [invite, run(CommandIDs.inviteNodes)],
          [trans.__('Add a node by address…'), run(CommandIDs.addNode)],
          [trans.__('Examine all nodes'), run(CommandIDs.doctor)],
          [trans.__('Measure all links'), run(CommandIDs.measureLinks)],
          ...(liveness(model, 'lost') ? [forgetSilent] : []),
          [trans.__('Make this machine a node…'), run(CommandIDs.makeNode)],
          [trans.__('Join a cluster…'), run(CommandIDs.joinCluster)],
          [
            trans.__('Install the agent as a service…'),
            run(CommandIDs.installService)
          ]
        ]}
      />
    </div>
  );
}

/** Number of nodes up, discovery problems, a clock that is off, and other clusters on the network. */
function State({ model }: IContext): JSX.Element {
  const { nodes, status } = model;
  const [up, suspect, lost] = ['up', 'suspect', 'lost'].map(state =>
    liveness(model, state)
  );
  const parts = [
    trans.__('%1 of %2 nodes up', up, nodes.length),
    ...(suspect ? [trans.__('%1 suspect', suspect)] : []),
    ...(lost ? [trans.__('%1 lost', lost)] : [])
  ];
  const strangers = status?.strangers ?? [];
  return (
    <>
      {nodes.length > 0 && (
        <p role="status">
          <Icon name={up === nodes.length ? 'up' : 'suspect'} />{' '}
          {parts.join(', ')}
        </p>
      )}
      {status?.discovery_problem && (
        <p className="s">
          <Icon name="warning" size={12} />{' '}
          {problemText(status.discovery_problem)}
        </p>
      )}
      {Math.abs(serverClock.aheadS) > MOST_DIFFERENCE_S && (
        <p className="s">
          <Icon name="warning" size={12} /> {clockLine(serverClock.aheadS)}
        </p>
      )}
      {strangers.length > 0 && (
        <p className="m s">
          {trans._n(
            'Also on this network, in another cluster: %2',
            'Also on this network, in other clusters: %2',
            strangers.length,
            strangers.join(', ')
          )}
        </p>
      )}
    </>
  );
}

function clockLine(ahead: number): string {
  const far = duration(Math.abs(ahead));
  return ahead > 0
    ? trans.__(
        'This computer’s clock is %1 ahead of the Jupyter server’s, which this page uses.',
        far
      )
    : trans.__(
        'This computer’s clock is %1 behind the Jupyter server’s, which this page uses.',
        far
      );
}
