/** Sidebar: the cluster, or why it cannot be shown. */

import { ReactWidget, UseSignal } from '@jupyterlab/apputils';
import type { Widget } from '@lumino/widgets';
import * as React from 'react';

import { clock } from '../formats';
import { Icon, mntrainIcon } from '../icons';
import { Cluster } from './cluster';
import { Forbidden, Missing, Waiting } from './notes';
import type { IContext } from './parts';
import { trans } from '../trans';

/** The setting: whether values have lines; `auto` is where there is room. */
export type LineChoice = 'auto' | 'always' | 'never';

/** Room, in pixels of the whole sidebar. */
const ROOM_PX = 260;

export class Sidebar extends ReactWidget {
  constructor(private context: Omit<IContext, 'hasLines' | 'isSeen'>) {
    super();
    this.id = 'mntrain-sidebar';
    this.addClass('mnt-sidebar-widget');
    this.title.icon = mntrainIcon;
    this.title.caption = trans.__('Multi-node training');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('Multi-node training'));
  }

  set lines(choice: LineChoice) {
    this.choice = choice;
    this.update();
  }

  protected render(): JSX.Element {
    const hasLines =
      this.choice === 'always' || (this.choice === 'auto' && this.hasRoom);
    const isSeen = () => this.isVisible;
    return (
      <div className="mnt mnt-sidebar">
        <UseSignal signal={this.context.model.changed}>
          {() => <Body {...this.context} {...{ hasLines, isSeen }} />}
        </UseSignal>
      </div>
    );
  }

  protected onResize(message: Widget.ResizeMessage): void {
    super.onResize(message);
    const width = message.width < 0 ? this.node.offsetWidth : message.width;
    const hasRoom = width >= ROOM_PX;
    // A sidebar behind another one has no width: it keeps its form.
    if (width > 0 && hasRoom !== this.hasRoom) {
      this.hasRoom = hasRoom;
      this.update();
    }
  }

  private choice: LineChoice = 'auto';
  private hasRoom = false;
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
