/** Row menu, opened by its button, right click, or Shift+F10. */

import { CommandRegistry } from '@lumino/commands';
import { Menu } from '@lumino/widgets';
import * as React from 'react';

import { Icon } from '../icons';

export type MenuItem = [label: string, run: () => unknown];

function open(items: MenuItem[], from: HTMLElement, x: number, y: number) {
  const commands = new CommandRegistry();
  const menu = new Menu({ commands });
  items.forEach(([label, execute], i) => {
    commands.addCommand(`${i}`, { label, execute });
    menu.addItem({ command: `${i}` });
  });
  menu.aboutToClose.connect(() => from.focus());
  menu.open(x, y);
  menu.activateNextItem();
}

/** Open a menu below its button. */
export function openMenu(items: MenuItem[], from: HTMLElement): void {
  const { left, bottom } = from.getBoundingClientRect();
  open(items, from, left, bottom);
}

export function RowMenu(props: {
  label: string;
  items: MenuItem[];
  tabIndex?: number;
}): JSX.Element {
  return (
    <button
      className="btn ico"
      tabIndex={props.tabIndex}
      aria-haspopup="menu"
      aria-label={props.label}
      onClick={event => openMenu(props.items, event.currentTarget)}
    >
      <Icon name="more" />
    </button>
  );
}

/** Event handlers that open a row's menu. */
export function menuKeys(items: MenuItem[]): React.HTMLAttributes<HTMLElement> {
  return {
    onContextMenu: event => {
      event.preventDefault();
      event.stopPropagation(); // a rank's menu, not its job's
      const { currentTarget, clientX, clientY } = event;
      open(items, currentTarget, clientX, clientY);
    },
    onKeyDown: event => {
      if (event.key === 'F10' && event.shiftKey) {
        event.preventDefault();
        event.stopPropagation();
        openMenu(items, event.target as HTMLElement);
      }
    }
  };
}
