/** The list of nodes. */

import * as React from 'react';

import { Node } from './node';
import type { IContext } from './parts';

export function Nodes(props: IContext): JSX.Element {
  return (
    <ul className="mnt-list">
      {props.model.nodes.map(node => (
        <Node key={node.key} node={node} {...props} />
      ))}
    </ul>
  );
}
