/** Cluster: state and actions, then nodes, links and jobs. */

import * as React from 'react';

import { NODES } from '../cells';
import { Icon } from '../icons';
import { problemText } from '../problem';
import { CommandIDs, type IClusterModel } from '../tokens';
import { OVER } from '../words';
import { Jobs } from './jobs';
import { Links } from './links';
import { RowMenu } from './menu';
import { Nodes } from './nodes';
import { AllSilent, Empty } from './notes';
import { type IContext, Section } from './parts';

export function Cluster(props: IContext): JSX.Element {
  const { model, trans } = props;
  const { nodes, jobs } = model;
  const answering = liveness(model, 'up') + liveness(model, 'suspect');
  const running = jobs.filter(job => !OVER.has(job.state));
  return (
    <>
      <header className="mnt-top">
        <Title {...props} />
        <State {...props} />
        {nodes.length > 0 && <Actions {...props} />}
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
        <Section title={trans.__('Links')} note="">
          <Links {...props} />
        </Section>
      )}
      <Section
        title={trans.__('Jobs')}
        note={
          running.length
            ? trans.__('%1 running', running.length)
            : trans.__('none running')
        }
      >
        <Jobs {...props} />
      </Section>
    </>
  );
}

function liveness(model: IClusterModel, state: string): number {
  return model.nodes.filter(node => node.view.liveness === state).length;
}

function Title({ model, commands, trans }: IContext): JSX.Element {
  const [hasMenu, setMenu] = React.useState(false);
  const name = model.status?.cluster ?? '';
  const invite = () => void commands.execute(CommandIDs.inviteNodes);
  return (
    <div className="row">
      <h2 className="mnt-cluster">{name}</h2>
      <span className="sp" />
      <button
        className="btn ico"
        aria-label={trans.__('Invite nodes…')}
        title={trans.__('Invite nodes…')}
        onClick={invite}
      >
        <Icon name="add" />
      </button>
      <RowMenu
        label={trans.__('More for cluster %1', name)}
        items={[
          { label: trans.__('Invite nodes…'), run: invite },
          {
            label: trans.__('Add a node by address…'),
            run: () => void commands.execute(CommandIDs.addNode)
          },
          {
            label: trans.__('Measure all links'),
            run: () => void commands.execute(CommandIDs.measureLinks, {})
          }
        ]}
        isOpen={hasMenu}
        setOpen={setMenu}
      />
    </div>
  );
}

/** Number of nodes up, discovery problems, and other clusters on the network. */
function State({ model, trans }: IContext): JSX.Element {
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
          {problemText(status.discovery_problem, trans)}
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

function Actions({ commands, trans, insert }: IContext): JSX.Element {
  return (
    <div className="mnt-buttons">
      <button
        className="btn pri"
        onClick={() => void commands.execute(CommandIDs.launch)}
      >
        {trans.__('Launch…')}
      </button>
      <button className="btn" onClick={() => insert(NODES)}>
        <Icon name="code" /> {trans.__('Insert cell')}
      </button>
    </div>
  );
}
