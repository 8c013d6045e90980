/** Components shared by the sidebar's sections. */

import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { copy } from '../clipboard';
import { ABSENT } from '../formats';
import { Icon } from '../icons';
import type { IClusterModel } from '../tokens';

export interface IContext {
  model: IClusterModel;
  commands: CommandRegistry;
  trans: TranslationBundle;
  /** Insert text as a cell. */
  insert: (text: string) => void;
  /** Start dragging text as a cell. */
  drag: (event: React.MouseEvent, label: string, text: string) => void;
}

export function Meter(props: {
  share: number | null | undefined;
  label: string;
}): JSX.Element {
  const known = typeof props.share === 'number';
  const share = known ? Math.min(1, Math.max(0, props.share!)) : 0;
  return (
    <span
      className="mnt-meter"
      role="meter"
      aria-label={props.label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(100 * share)}
      aria-valuetext={known ? `${Math.round(100 * share)} %` : ABSENT}
    >
      <span style={{ width: `${100 * share}%` }} />
    </span>
  );
}

/** A shell command with a copy button. */
export function Copyable(props: {
  text: string;
  trans: TranslationBundle;
}): JSX.Element {
  const [isCopied, setCopied] = React.useState(false);
  const onCopy = () => {
    void copy(props.text).then(() => {
      setCopied(true);
      window.setTimeout(() => setCopied(false), 2000);
    });
  };
  return (
    <div className="mnt-copyable">
      <code>{props.text}</code>
      <button
        className="btn ico"
        aria-label={props.trans.__('Copy %1', props.text)}
        onClick={onCopy}
      >
        <Icon name={isCopied ? 'succeeded' : 'copy'} />
      </button>
    </div>
  );
}

export function Section(props: {
  title: string;
  note: string;
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
