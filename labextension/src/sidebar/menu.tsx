/** Row menu, opened by its button, right click, or Shift+F10. */

import * as React from 'react';

import { Icon } from '../icons';

export interface IMenuItem {
  label: string;
  run: () => void;
  isDangerous?: boolean;
}

export interface IRowMenuProps {
  label: string;
  items: IMenuItem[];
  isOpen: boolean;
  setOpen: (isOpen: boolean) => void;
}

export function RowMenu(props: IRowMenuProps): JSX.Element {
  const { items, isOpen, setOpen } = props;
  const list = React.useRef<HTMLDivElement>(null);
  const button = React.useRef<HTMLButtonElement>(null);
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  useOutside(list, isOpen, () => setOpen(false));
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
        <div
          className="mnt-menu"
          role="menu"
          ref={list}
          onKeyDown={event => walk(event, list.current!, close)}
        >
          {items.map(item => (
            <button
              key={item.label}
              role="menuitem"
              tabIndex={-1}
              className={item.isDangerous ? 'mnt-danger' : undefined}
              onClick={() => {
                close();
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

function itemsOf(list: HTMLElement | null): HTMLElement[] {
  return [...(list?.querySelectorAll<HTMLElement>('[role=menuitem]') ?? [])];
}

/** Focus a menu's first item when it opens; close it on a click elsewhere. */
function useOutside(
  list: React.RefObject<HTMLElement>,
  isOpen: boolean,
  close: () => void
): void {
  React.useEffect(() => {
    if (!isOpen) {
      return;
    }
    itemsOf(list.current)[0]?.focus();
    const outside = (event: Event) => {
      if (!list.current?.contains(event.target as Node)) {
        close();
      }
    };
    document.addEventListener('pointerdown', outside, true);
    return () => document.removeEventListener('pointerdown', outside, true);
  }, [isOpen]);
}

/** Arrow keys, Home and End move through a menu; Escape and Tab close it. */
function walk(
  event: React.KeyboardEvent,
  list: HTMLElement,
  close: () => void
): void {
  const all = itemsOf(list);
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
    close();
  } else {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
}

/** Event handlers that open a row's menu. */
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
