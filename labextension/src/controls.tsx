/** Buttons, selections and bars of the sidebar, the live view and the log view. */

import * as React from 'react';

import { type Maybe, wholePercent } from './formats';
import { Icon, type IconName } from './icons';

export function Button(props: {
  label: string;
  run: () => unknown;
  kind?: 'pri' | 'dan' | 'ico';
  icon?: IconName;
  title?: string;
  isOff?: boolean;
  isPressed?: boolean;
}): JSX.Element {
  const { label, run, kind, icon, title, isOff, isPressed } = props;
  const isIcon = kind === 'ico';
  return (
    <button
      className={`btn ${kind ?? ''}`}
      title={isIcon ? label : title}
      aria-label={isIcon ? label : undefined}
      aria-disabled={isOff}
      aria-pressed={isPressed}
      onClick={() => !isOff && void run()}
    >
      {icon && <Icon name={icon} size={isIcon ? 16 : 12} />}
      {isIcon ? '' : label}
    </button>
  );
}

/** A selection with its label in front. */
export function Select<Value>(props: {
  label: string;
  value: Value;
  options: ReadonlyArray<readonly [value: Value, text: string | number]>;
  pick: (value: Value) => void;
  className?: string;
}): JSX.Element {
  const { label, value, options, pick, className = '' } = props;
  return (
    <label className={`s ${className}`}>
      {label}{' '}
      <select
        value={String(value)}
        onChange={({ target }) => pick(options[target.selectedIndex][0])}
      >
        {options.map(([one, text]) => (
          <option key={String(one)} value={String(one)}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A share, 0..1, as a bar: of something used, or of something done. */
export function Bar(props: {
  role: 'meter' | 'progressbar';
  share: Maybe;
  label: string;
}): JSX.Element {
  const { role, share, label } = props;
  const percent = 100 * Math.min(1, Math.max(0, share ?? 0));
  return (
    <span
      className={`mnt-${role}`}
      role={role}
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(percent)}
      aria-valuetext={wholePercent(share)}
    >
      <span style={{ width: `${percent}%` }} />
    </span>
  );
}
