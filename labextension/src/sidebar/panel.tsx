/** Sidebar: the cluster, or why it cannot be shown. */

import { ReactWidget, UseSignal } from '@jupyterlab/apputils';
import * as React from 'react';

import { clock } from '../formats';
import { Icon, mntrainIcon } from '../icons';
import { Cluster } from './cluster';
import { Forbidden, Missing, Waiting } from './notes';
import type { IContext } from './parts';
import { trans } from '../trans';

export class Sidebar extends ReactWidget {
  constructor(private context: IContext) {
    super();
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
  const { model } = props;
  switch (model.connection) {
    case 'missing':
      return <Missing {...props} />;
    case 'forbidden':
      return <Forbidden {...props} />;
    case 'connecting':
      return <Waiting title={trans.__('Connecting to the Jupyter server')} />;
    case 'retrying':
      return (
        <>
          <p className="mnt-banner" role="status">
            <Icon name="warning" />{' '}
            {trans.__(
              'The Jupyter server is not responding. Values are from %1.',
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
