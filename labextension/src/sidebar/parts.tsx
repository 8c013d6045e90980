/** Small things that every section of the sidebar uses. */

import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { copy } from '../clipboard';
import { Icon } from '../icons';
import type { IClusterModel } from '../tokens';

export interface IContext {
  model: IClusterModel;
  commands: CommandRegistry;
  trans: TranslationBundle;
  /** Put text into the notebook as a cell. */
  insert: (text: string) => void;
  /** Begin to drag text as a cell. */
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
      aria-valuetext={known ? `${Math.round(100 * share)} %` : '–'}
    >
      <span style={{ width: `${100 * share}%` }} />
    </span>
  );
}

/** A command of the shell, to be copied. */
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
    <section aria-labeledby={id}>
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

export interface IMenuItem {
  label: string;
  run: () => void;
  isDangerous?: boolean;
}

/** "…" beside a name; also by right click on the row and Shift+F10. */
export function RowMenu(props: {
  label: string;
  items: IMenuItem[];
  isOpen: boolean;
  setOpen: (isOpen: boolean) => void;
}): JSX.Element {
  const { items, isOpen, setOpen } = props;
  const list = React.useRef<HTMLDivElement>(null);
  const button = React.useRef<HTMLButtonElement>(null);
  React.useEffect(() => {
    if (!isOpen) {
      return;
    }
    list.current?.querySelector<HTMLElement>('[role=menuitem]')?.focus();
    const outside = (event: Event) => {
      if (!list.current?.contains(event.target as Node)) {
        setOpen(false);
      }
    };
    document.addEventListener('pointerdown', outside, true);
    return () => document.removeEventListener('pointerdown', outside, true);
  }, [isOpen]);
  const onKey = (event: React.KeyboardEvent) => {
    const all = [
      ...(list.current?.querySelectorAll<HTMLElement>('[role=menuitem]') ?? [])
    ];
    const at = all.indexOf(document.activeElement as HTMLElement);
    const steps: Record<string, number> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      Home: 0,
      End: all.length - 1
    };
    if (event.key in steps) {
      all[(steps[event.key] + all.length) % all.length]?.focus();
    } else if (event.key === 'Escape' || event.key === 'Tab') {
      setOpen(false);
      button.current?.focus();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <span className="mnt-menu-anchor">
      <button
        ref={button}
        className="btn ico"
        aria-haspopup="menu"
        aria-expanded={isOpen}
        aria-label={props.label}
        onClick={() => setOpen(!isOpen)}
      >
        <Icon name="more" />
      </button>
      {isOpen && (
        <div className="mnt-menu" role="menu" ref={list} onKeyDown={onKey}>
          {items.map(item => (
            <button
              key={item.label}
              role="menuitem"
              tabIndex={-1}
              className={item.isDangerous ? 'mnt-danger' : undefined}
              onClick={() => {
                setOpen(false);
                button.current?.focus();
                item.run();
              }}
            >
              {item.label}
            </button>
          ))}
        </div>
      )}
    </span>
  );
}

/** What opens a row's menu without its button. */
export function menuKeys(open: () => void): {
  onContextMenu: (event: React.MouseEvent) => void;
  onKeyDown: (event: React.KeyboardEvent) => void;
} {
  return {
    onContextMenu: event => {
      event.preventDefault();
      open();
    },
    onKeyDown: event => {
      if (event.key === 'F10' && event.shiftKey) {
        event.preventDefault();
        open();
      }
    }
  };
}
