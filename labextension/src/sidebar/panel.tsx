/** The sidebar: the cluster's state, then nodes, links and jobs. */

import { ReactWidget, UseSignal } from '@jupyterlab/apputils';
import * as React from 'react';

import { NODES } from '../cells';
import { clock, duration } from '../formats';
import { Icon, mntrainIcon } from '../icons';
import { CommandIDs } from '../tokens';
import { OVER } from '../words';
import { Jobs } from './jobs';
import { Links, Nodes } from './nodes';
import { Copyable, type IContext, RowMenu, Section } from './parts';

/** Silent nodes get a second before it is said that none answers. */
const PATIENCE_MS = 3000;

export class Sidebar extends ReactWidget {
  constructor(private context: IContext) {
    super();
    const { trans } = context;
    this.id = 'mntrain-sidebar';
    this.addClass('mnt-sidebar-widget');
    this.title.icon = mntrainIcon;
    this.title.caption = trans.__('Multi-node training');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('Multi-node training'));
  }

  protected render(): JSX.Element {
    return (
      <div className="mnt mnt-sidebar">
        <UseSignal signal={this.context.model.changed}>
          {() => <Body {...this.context} />}
        </UseSignal>
      </div>
    );
  }
}

function Body(props: IContext): JSX.Element {
  const { model, trans } = props;
  switch (model.connection) {
    case 'missing':
      return (
        <Note
          title={trans.__('The Jupyter server lacks jupyter_mntrain')}
          icon="warning"
        >
          <p>
            {trans.__(
              'Install it in the environment that starts JupyterLab, then restart JupyterLab:'
            )}
          </p>
          <Copyable text="pip install jupyter-mntrain" trans={trans} />
          <p className="m s">
            {trans.__(
              'Running jobs are not affected. %mntrain in notebooks keeps working.'
            )}
          </p>
          <button className="btn" onClick={() => model.retry()}>
            {trans.__('Check again')}
          </button>
        </Note>
      );
    case 'forbidden':
      return (
        <Note
          title={trans.__('This user may not see the cluster')}
          icon="warning"
        >
          <p>{trans.__('Ask whoever runs this Jupyter server.')}</p>
          <button className="btn" onClick={() => model.retry()}>
            {trans.__('Check again')}
          </button>
        </Note>
      );
    case 'connecting':
      return (
        <Waiting {...props} title={trans.__('Asking the Jupyter server')} />
      );
    case 'retrying':
      return (
        <>
          <p className="mnt-banner" role="status">
            <Icon name="warning" />{' '}
            {trans.__(
              'The Jupyter server does not answer. Values are from %1.',
              clock(model.lastHeard, true)
            )}{' '}
            <button className="mnt-textlink" onClick={() => model.retry()}>
              {trans.__('Try now')}
            </button>
          </p>
          <div className="mnt-old">
            {model.status && <Cluster {...props} />}
          </div>
        </>
      );
    case 'live':
      return <Cluster {...props} />;
  }
}

function Cluster(props: IContext): JSX.Element {
  const { model, commands, trans, insert } = props;
  const { nodes, jobs } = model;
  const name = model.status?.cluster ?? '';
  const count = (state: string) =>
    nodes.filter(node => node.view.liveness === state).length;
  const [hasMenu, setMenu] = React.useState(false);
  const running = jobs.filter(job => !OVER.has(job.state));
  const parts = [
    trans.__('%1 of %2 nodes up', count('up'), nodes.length),
    ...(count('suspect') ? [trans.__('%1 suspect', count('suspect'))] : []),
    ...(count('lost') ? [trans.__('%1 lost', count('lost'))] : [])
  ];
  const strangers = model.status?.strangers ?? [];
  const isWell = nodes.length > 0 && count('up') === nodes.length;
  return (
    <>
      <header className="mnt-top">
        <div className="row">
          <h2 className="mnt-cluster">{name}</h2>
          <span className="sp" />
          <button
            className="btn ico"
            aria-label={trans.__('Invite nodes…')}
            title={trans.__('Invite nodes…')}
            onClick={() => void commands.execute(CommandIDs.inviteNodes)}
          >
            <Icon name="add" />
          </button>
          <RowMenu
            label={trans.__('More for cluster %1', name)}
            items={[
              {
                label: trans.__('Invite nodes…'),
                run: () => void commands.execute(CommandIDs.inviteNodes)
              },
              {
                label: trans.__('Add a node by its address…'),
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
        {nodes.length > 0 && (
          <p role="status">
            <Icon name={isWell ? 'up' : 'suspect'} /> {parts.join(', ')}
          </p>
        )}
        {model.status?.discovery_problem && (
          <p className="s">
            <Icon name="warning" size={12} /> {model.status.discovery_problem}
          </p>
        )}
        {strangers.length > 0 && (
          <p className="m s">
            {trans._n(
              'Also on this network, of another cluster: %2',
              'Also on this network, of other clusters: %2',
              strangers.length,
              strangers.join(', ')
            )}
          </p>
        )}
        {nodes.length > 0 && (
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
        )}
      </header>
      {nodes.length === 0 ? (
        <Empty {...props} />
      ) : (
        <Section title={trans.__('Nodes')} note={String(nodes.length)}>
          {count('up') + count('suspect') === 0 && <NobodyAnswers {...props} />}
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

function Empty(props: IContext): JSX.Element {
  const { model, commands, trans } = props;
  const [isPatient, setPatient] = React.useState(true);
  React.useEffect(() => {
    const timer = window.setTimeout(() => setPatient(false), PATIENCE_MS);
    return () => window.clearTimeout(timer);
  }, []);
  const name = model.status?.cluster ?? '';
  if (isPatient) {
    return (
      <Waiting {...props} title={trans.__('Looking for nodes of %1', name)} />
    );
  }
  return (
    <Note title={trans.__('No nodes in %1 yet', name)}>
      <p>
        {trans.__(
          'A machine becomes a node with one command, which an invitation gives.'
        )}
        {model.status?.is_driver === false &&
          ' ' + trans.__('The first one makes the cluster.')}
      </p>
      <button
        className="btn pri"
        onClick={() => void commands.execute(CommandIDs.inviteNodes)}
      >
        {trans.__('Invite nodes…')}
      </button>
      <p>
        {trans.__(
          'Nodes that have joined appear by themselves. Where multicast does not reach, they are added by address.'
        )}
      </p>
      <button
        className="btn"
        onClick={() => void commands.execute(CommandIDs.addNode)}
      >
        {trans.__('Add by address…')}
      </button>
    </Note>
  );
}

function NobodyAnswers(props: IContext): JSX.Element {
  const { model, trans } = props;
  const tried = model.nodes.every(node => node.view.reason);
  if (!tried) {
    return <p className="mnt-indent m">{trans.__('Asking…')}</p>;
  }
  return (
    <p className="mnt-indent" role="status">
      <span className="b">
        {trans.__('No node of %1 answers.', model.status?.cluster ?? '')}
      </span>{' '}
      {trans.__('Jobs keep running without this view. Reasons below.')}
    </p>
  );
}

function Waiting(props: IContext & { title: string }): JSX.Element {
  const [begun] = React.useState(() => Date.now());
  const [seconds, setSeconds] = React.useState(0);
  React.useEffect(() => {
    const timer = window.setInterval(
      () => setSeconds((Date.now() - begun) / 1000),
      1000
    );
    return () => window.clearInterval(timer);
  }, []);
  return (
    <Note title={props.title}>
      <p className="m s">{seconds >= 1 ? duration(seconds) : ''}</p>
      <div className="mnt-ghosts" aria-hidden="true">
        <span />
        <span />
        <span />
      </div>
    </Note>
  );
}

function Note(props: {
  title: string;
  icon?: string;
  children: React.ReactNode;
}): JSX.Element {
  return (
    <div className="mnt-note">
      <h2>
        {props.icon && <Icon name={props.icon} />} {props.title}
      </h2>
      {props.children}
    </div>
  );
}
