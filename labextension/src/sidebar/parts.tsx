/** Components shared by the sidebar's sections. */

import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { copy } from '../clipboard';
import { Button } from '../controls';
import type { Past } from '../history/past';
import { Icon } from '../icons';
import type { NodeEntry } from '../schema';
import type { IClusterModel } from '../tokens';
import { trans } from '../trans';

export interface IContext {
  model: IClusterModel;
  commands: CommandRegistry;
  /** Insert text as a cell. */
  insert: (text: string) => void;
  /** Start dragging text as a cell. */
  drag: (event: React.MouseEvent, label: string, text: string) => void;
  /** Whether each value of a node has its last hour as a line. */
  hasLines: boolean;
  /** Whether somebody can see this. */
  isSeen: () => boolean;
}

/** What the parts of a node's row are given. */
export interface INodeContext extends IContext {
  node: NodeEntry;
  /** Its last hour; null = no lines. */
  past: Past | null;
}

/** A shell command with a copy button. */
export function Copyable({ text }: { text: string }): JSX.Element {
  const [isCopied, setCopied] = React.useState(false);
  const run = async () => {
    await copy(text);
    setCopied(true);
    window.setTimeout(() => setCopied(false), 2000);
  };
  return (
    <div className="mnt-copyable">
      <code>{text}</code>
      <Button
        kind="ico"
        icon={isCopied ? 'succeeded' : 'copy'}
        label={trans.__('Copy %1', text)}
        run={run}
      />
    </div>
  );
}

export function Section(props: {
  title: string;
  note?: string;
  children: React.ReactNode;
}): JSX.Element {
  const [isOpen, setOpen] = React.useState(true);
  const id = React.useId();
  return (
    <section aria-labelledby={id}>
      <h3 className="mnt-section" id={id}>
        <button aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          <Icon name={isOpen ? 'open' : 'closed'} />
          <span className="mnt-section-title">{props.title}</span>{' '}
          <span className="m s">{props.note}</span>
        </button>
      </h3>
      {isOpen && props.children}
    </section>
  );
}
