/** Icons. Always next to a word. */

import { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { JobState, Liveness } from './words';

const NODES = `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">
  <g class="jp-icon3" fill="none" stroke="#616161" stroke-width="1.5" stroke-linejoin="round">
    <rect x="1.75" y="2" width="5" height="4" rx="0.5"/><rect x="9.25" y="2" width="5" height="4" rx="0.5"/>
    <rect x="5.5" y="10" width="5" height="4" rx="0.5"/><path d="M4.25 6v2h7.5V6M8 8v2"/>
  </g></svg>`;

export const mntrainIcon = new LabIcon({
  name: 'jupyter-mntrain:nodes',
  svgstr: NODES
});

const PATHS = {
  up: 'M8 3.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9z',
  suspect: 'M8 2.5 14 13H2zM8 6.5v3M8 11v.5',
  lost: 'M3 3h10v10H3zM5.5 5.5l5 5M10.5 5.5l-5 5',
  connecting: 'M8 2.5a5.5 5.5 0 1 0 5.5 5.5M8 5v3l2 1.5',
  running: 'M5 3.5 12.5 8 5 12.5z',
  starting: 'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 5v3h2.5',
  pending: 'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 5v3l2 1.5',
  stopping: 'M4.5 4.5h7v7h-7z',
  canceled: 'M4.5 4.5h7v7h-7z',
  succeeded: 'M3 8.5 6.5 12 13 4.5',
  failed: 'M4 4l8 8M12 4l-8 8',
  unknown: 'M6 6a2 2 0 1 1 2.5 2c-.5.2-.5.7-.5 1.5M8 11.5v.5',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  open: 'M4 6l4 4 4-4',
  closed: 'M6 4l4 4-4 4',
  differs: 'M3 6h10M3 10h10M11 3 5 13',
  warning: 'M8 2.5 14 13H2zM8 6.5v3M8 11v.5',
  copy: 'M5.5 5.5V3h7.5v7.5h-2.5M3 5.5h7.5V13H3z',
  code: 'M5.5 4.5 2 8l3.5 3.5M10.5 4.5 14 8l-3.5 3.5',
  add: 'M8 3v10M3 8h10',
  table: 'M2.5 3.5h11v9h-11zM2.5 6.5h11M6 6.5v6',
  pause: 'M5.5 3.5v9M10.5 3.5v9',
  resume: 'M5 3.5 12.5 8 5 12.5z',
  download: 'M8 3v7M4.5 7 8 10.5 11.5 7M3 13h10',
  tab: 'M7 3H3v10h10V9M9 3h4v4M13 3 7.5 8.5'
} satisfies Partial<Record<string, string>> &
  Record<JobState | Liveness, string>;

export type IconName = keyof typeof PATHS;

const FILLED = new Set(['up', 'running', 'stopping', 'canceled', 'resume']);

const TONES: Record<string, ReadonlyArray<IconName>> = {
  ok: ['up', 'running', 'succeeded'],
  warn: ['suspect', 'warning', 'differs', 'starting'],
  bad: ['lost', 'failed'],
  off: ['canceled', 'stopping', 'unknown', 'pending', 'connecting']
};

export function Icon(props: { name: IconName; size?: number }): JSX.Element {
  const { name, size = 16 } = props;
  const tone = Object.keys(TONES).find(one => TONES[one].includes(name));
  return (
    <svg
      className={`i${FILLED.has(name) ? ' f' : ''}${tone ? ` c-${tone}` : ''}`}
      style={{ width: size, height: size }}
      viewBox="0 0 16 16"
      aria-hidden="true"
      focusable="false"
    >
      <path d={PATHS[name] ?? PATHS.unknown} />
    </svg>
  );
}
