/** Invitation dialog: the command with which machines join. */

import { Dialog, ReactWidget, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { clock } from '../formats';
import type { Invitation } from '../schema';
import { Copyable } from './parts';
import { trans } from '../trans';

export async function showInvitation(invitation: Invitation): Promise<void> {
  const body = ReactWidget.create(<Explained invitation={invitation} />);
  body.addClass('mnt');
  body.addClass('mnt-invitation');
  await showDialog({
    title: trans._n('Invite a node', 'Invite %1 nodes', invitation.uses),
    body,
    buttons: [Dialog.okButton({ label: trans.__('Close') })]
  });
}

function Explained(props: { invitation: Invitation }): JSX.Element {
  const { invitation } = props;
  return (
    <>
      <p>{trans.__('On each machine that will be a node, run:')}</p>
      <Copyable text="pip install jupyter_mntrain-*.whl" />
      <Copyable text={invitation.command} />
      <p className="s">
        {trans.__(
          'This server’s machine must be able to reach its TCP port %1, and it needs these versions: %2.',
          invitation.port,
          Object.entries(invitation.versions)
            .map(([name, version]) => `${name} ${version}`)
            .join(', ')
        )}
      </p>
      <p className="s">
        {trans.__(
          'With --service, the agent outlives your login. Without it, the agent ends with the ssh session.'
        )}
      </p>
      <p>
        {trans.__(
          'If you can reach it by ssh, this does all of that from a terminal here:'
        )}
      </p>
      <Copyable text="mntrain install USER@HOST" />
      <p>
        {trans.__(
          'The node appears in the sidebar once it has joined. You can close this dialog.'
        )}
      </p>
      <p className="m s">
        {trans._n(
          'Valid for %1 machine until %2. Anyone with this command can join the cluster: share it like a password.',
          'Valid for %1 machines until %2. Anyone with this command can join the cluster: share it like a password.',
          invitation.uses,
          clock(invitation.expires_s)
        )}
      </p>
    </>
  );
}
