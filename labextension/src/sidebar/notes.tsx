/** Sidebar messages shown instead of, or above, the lists. */

import * as React from 'react';

import { Button } from '../controls';
import { duration } from '../formats';
import { Icon, type IconName } from '../icons';
import { CommandIDs } from '../tokens';
import { Copyable, type IContext } from './parts';
import { trans } from '../trans';

/** How long to wait for nodes before saying that there are none. */
const PATIENCE_MS = 3000;

function Note(props: {
  title: string;
  icon?: IconName;
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

function CheckAgain({ model }: IContext): JSX.Element {
  return <Button label={trans.__('Check again')} run={() => model.retry()} />;
}

export function Missing(props: IContext): JSX.Element {
  return (
    <Note
      title={trans.__('jupyter_mntrain is not installed on the Jupyter server')}
      icon="warning"
    >
      <p>
        {trans.__(
          'Install it in the environment that starts JupyterLab, then restart JupyterLab:'
        )}
      </p>
      <Copyable text="pip install jupyter_mntrain-*.whl" />
      <p className="m s">
        {trans.__(
          'Running jobs are not affected. %mntrain in notebooks keeps working.'
        )}
      </p>
      <CheckAgain {...props} />
    </Note>
  );
}

export function Forbidden(props: IContext): JSX.Element {
  return (
    <Note
      title={trans.__('You do not have permission to see the cluster')}
      icon="warning"
    >
      <p>{trans.__('Ask the administrator of this Jupyter server.')}</p>
      <CheckAgain {...props} />
    </Note>
  );
}

/** A cluster without nodes: how to add some. */
export function Empty(props: IContext): JSX.Element {
  const { model, commands } = props;
  const [isPatient, setPatient] = React.useState(true);
  React.useEffect(() => {
    const timer = window.setTimeout(() => setPatient(false), PATIENCE_MS);
    return () => window.clearTimeout(timer);
  }, []);
  const name = model.status?.cluster ?? '';
  if (isPatient) {
    return <Waiting title={trans.__('Looking for nodes of %1', name)} />;
  }
  return (
    <Note title={trans.__('No nodes in %1 yet', name)}>
      <p>
        {trans.__('Invite a machine: one command there makes it a node.')}
        {model.status?.is_driver === false &&
          ' ' + trans.__('The first invitation creates the cluster.')}
      </p>
      <Button
        kind="pri"
        label={trans.__('Invite nodes…')}
        run={() => commands.execute(CommandIDs.inviteNodes)}
      />
      <Button
        label={trans.__('Make this machine a node…')}
        run={() => commands.execute(CommandIDs.makeNode)}
      />
      <Button
        label={trans.__('Join a cluster…')}
        run={() => commands.execute(CommandIDs.joinCluster)}
      />
      <p>
        {trans.__(
          'Nodes that have joined appear automatically. On networks without multicast, add them by address.'
        )}
      </p>
      <Button
        label={trans.__('Add by address…')}
        run={() => commands.execute(CommandIDs.addNode)}
      />
      <p>
        {trans.__('A scheduler, such as SLURM or Kubernetes, can give nodes.')}
      </p>
      <Button
        label={trans.__('Launch…')}
        run={() => commands.execute(CommandIDs.launch)}
      />
    </Note>
  );
}

/** No node is answering. */
export function AllSilent(props: IContext): JSX.Element {
  const { model } = props;
  const tried = model.nodes.every(node => node.view.problem);
  if (!tried) {
    return <p className="mnt-indent m">{trans.__('Connecting…')}</p>;
  }
  return (
    <p className="mnt-indent" role="status">
      <span className="b">
        {trans.__('No node of %1 is answering.', model.status?.cluster ?? '')}
      </span>{' '}
      {trans.__('Running jobs are not affected. See each node for the reason.')}
    </p>
  );
}

/** Waiting, with the elapsed time. */
export function Waiting({ title }: { title: string }): JSX.Element {
  const [begun] = React.useState(() => performance.now());
  const [seconds, setSeconds] = React.useState(0);
  React.useEffect(() => {
    const timer = window.setInterval(
      () => setSeconds((performance.now() - begun) / 1000),
      1000
    );
    return () => window.clearInterval(timer);
  }, []);
  return (
    <Note title={title}>
      <p className="m s">{seconds >= 1 ? duration(seconds) : ''}</p>
      <div className="mnt-ghosts" aria-hidden="true">
        <span />
        <span />
        <span />
      </div>
    </Note>
  );
}
