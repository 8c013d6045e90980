/** Node row: state, hardware, traffic and problem. */

import * as React from 'react';

import { copy } from '../clipboard';
import { cellForNodes } from '../cells';
import { serverClock } from '../clock';
import * as formats from '../formats';
import { Icon } from '../icons';
import { problemText } from '../problem';
import type { Divergence, NodeEntry } from '../schema';
import { CommandIDs } from '../tokens';
import { stateWord } from '../words';
import { Measurements } from './measurements';
import { menuKeys, type MenuItem, RowMenu } from './menu';
import type { IContext } from './parts';
import { trans } from '../trans';

export function Node(props: IContext & { node: NodeEntry }): JSX.Element {
  const { node, drag } = props;
  const [isOpen, setOpen] = React.useState(true);
  const { view } = node;
  const state = view.is_conflict ? 'lost' : view.liveness;
  const items = menuItems(props);
  return (
    <li className="mnt-node" data-liveness={view.liveness} {...menuKeys(items)}>
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
          <span>{stateLine(node)}</span>
        </button>
        <RowMenu label={trans.__('More for %1', node.name)} items={items} />
      </div>
      {view.problem && (
        <div className="mnt-indent">
          <p>{problemText(view.problem)}</p>
        </div>
      )}
      {isOpen && view.info && (
        <div className={`mnt-indent${state === 'up' ? '' : ' mnt-old'}`}>
          <Measurements {...props} />
          {(node.divergences ?? []).map(one => (
            <p key={one.key} className="s">
              <Icon name="differs" size={12} /> {divergenceLine(one)}
            </p>
          ))}
        </div>
      )}
    </li>
  );
}

function menuItems(props: IContext & { node: NodeEntry }): MenuItem[] {
  const { node, model, commands, insert } = props;
  const nodes = model.nodes
    .filter(one => one.view.liveness === 'up')
    .map(one => one.name);
  return [
    [
      trans.__('Insert cell for %1', node.name),
      () => insert(cellForNodes([node]))
    ],
    [trans.__('Copy address'), () => copy(node.view.address)],
    [
      trans.__('Show its history'),
      () => commands.execute(CommandIDs.nodeHistory, { key: node.key })
    ],
    [
      trans.__('Examine'),
      () => commands.execute(CommandIDs.doctor, { nodes: [node.name] })
    ],
    [
      trans.__('Measure its links'),
      () => commands.execute(CommandIDs.measureLinks, { nodes })
    ],
    [
      trans.__('Remove from the list'),
      () => commands.execute(CommandIDs.forgetNode, { key: node.key })
    ]
  ];
}

function stateLine(node: NodeEntry): string {
  const { liveness, last_seen_s: seen, is_conflict } = node.view;
  if (is_conflict) {
    return trans.__('conflict');
  }
  const word = closedWord(node) ?? stateWord(liveness);
  if ((liveness === 'suspect' || liveness === 'lost') && seen) {
    const silent = Math.max(0, serverClock.now() - seen);
    return trans.__('%1, silent for %2', word, formats.duration(silent));
  }
  return word;
}

/** Why a node that answers takes no jobs, in a word or two. */
function closedWord({ view }: NodeEntry): string | null {
  if (view.liveness !== 'up') {
    return null;
  }
  switch (view.problem?.kind) {
    case 'drained':
      return trans.__('up, drained');
    case 'out-of-hours':
      return trans.__('up, not offered now');
    default:
      return null;
  }
}

function divergenceLine(one: Divergence): string {
  const version = one.value ?? trans.__('not installed');
  return one.majority
    ? trans.__('%1 %2, the other nodes have %3', one.key, version, one.majority)
    : trans.__('%1 %2; the other nodes differ', one.key, version);
}
