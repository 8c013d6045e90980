/** Node row: state, hardware, traffic and problem. */

import * as React from 'react';

import { copy } from '../clipboard';
import { cellForNodes } from '../cells';
import * as formats from '../formats';
import { Icon } from '../icons';
import { problemText } from '../problem';
import type { Divergence, NodeEntry } from '../schema';
import { CommandIDs } from '../tokens';
import { stateWord } from '../words';
import { Hardware } from './hardware';
import { Interfaces } from './interfaces';
import { type IMenuItem, menuKeys, RowMenu } from './menu';
import type { IContext } from './parts';

export function Node(props: IContext & { node: NodeEntry }): JSX.Element {
  const { node, trans, drag } = props;
  const [isOpen, setOpen] = React.useState(true);
  const [hasMenu, setMenu] = React.useState(false);
  const { view } = node;
  const state = view.is_conflict ? 'lost' : view.liveness;
  return (
    <li
      className="mnt-node"
      data-liveness={view.liveness}
      {...menuKeys(() => setMenu(true))}
    >
      <div
        className="mnt-row-head"
        onMouseDown={event => drag(event, node.name, cellForNodes([node]))}
      >
        <button
          className="mnt-disclose"
          aria-expanded={isOpen}
          onClick={() => setOpen(!isOpen)}
        >
          <Icon name={isOpen ? 'open' : 'closed'} /> <Icon name={state} />{' '}
          <span className="mnt-name">{node.name}</span>{' '}
          <span>{stateLine(node, trans)}</span>
        </button>
        <RowMenu
          label={trans.__('More for %1', node.name)}
          items={menuItems(props)}
          isOpen={hasMenu}
          setOpen={setMenu}
        />
      </div>
      {view.problem && (
        <p className="mnt-indent">{problemText(view.problem, trans)}</p>
      )}
      {isOpen && view.info && (
        <div className={`mnt-indent${state === 'up' ? '' : ' mnt-old'}`}>
          <Hardware {...props} />
          <Interfaces {...props} />
          {(node.divergences ?? []).map(one => (
            <p key={one.key} className="s">
              <Icon name="differs" size={12} /> {divergenceLine(one, trans)}
            </p>
          ))}
        </div>
      )}
    </li>
  );
}

function menuItems(props: IContext & { node: NodeEntry }): IMenuItem[] {
  const { node, model, commands, trans, insert } = props;
  const up = model.nodes.filter(one => one.view.liveness === 'up');
  return [
    {
      label: trans.__('Insert cell for %1', node.name),
      run: () => insert(cellForNodes([node]))
    },
    {
      label: trans.__('Copy address'),
      run: () => void copy(node.view.address)
    },
    {
      label: trans.__('Measure its links'),
      run: () =>
        void commands.execute(CommandIDs.measureLinks, {
          nodes: up.map(one => one.name)
        })
    },
    {
      label: trans.__('Remove from the list'),
      run: () => void commands.execute(CommandIDs.forgetNode, { key: node.key })
    }
  ];
}

function stateLine(node: NodeEntry, trans: IContext['trans']): string {
  const { liveness, last_seen_s: seen, is_conflict } = node.view;
  if (is_conflict) {
    return trans.__('conflict');
  }
  const word = stateWord(liveness, trans);
  if ((liveness === 'suspect' || liveness === 'lost') && seen) {
    const silent = Math.max(0, Date.now() / 1000 - seen);
    return trans.__('%1, silent for %2', word, formats.duration(silent));
  }
  return word;
}

function divergenceLine(one: Divergence, trans: IContext['trans']): string {
  const version = one.value ?? trans.__('not installed');
  return one.majority
    ? trans.__('%1 %2, the other nodes have %3', one.key, version, one.majority)
    : trans.__('%1 %2; the other nodes differ', one.key, version);
}
