/** Keys of the list, while a row has the focus. Pure. */

export type KeyAct =
  | { kind: 'move'; to: number; ticks: boolean }
  | { kind: 'open' | 'close' | 'tick' | 'attach' | 'resume' | 'rename' }
  | { kind: 'note' | 'remove' | 'search' };

interface IPressed {
  key: string;
  shiftKey: boolean;
  ctrlKey: boolean;
  metaKey: boolean;
  altKey: boolean;
}

const ACTS: Partial<Record<string, Exclude<KeyAct['kind'], 'move'>>> = {
  ArrowRight: 'open',
  ArrowLeft: 'close',
  ' ': 'tick',
  Enter: 'attach',
  r: 'resume',
  F2: 'rename',
  n: 'note',
  Delete: 'remove',
  '/': 'search'
};

const PAGE = 10;

/** The action of a key on row `at` of `rows`; null = not ours. */
export function actOf(
  pressed: IPressed,
  at: number,
  rows: number
): KeyAct | null {
  const { key, shiftKey, ctrlKey, metaKey, altKey } = pressed;
  if (ctrlKey || metaKey || altKey) {
    return null;
  }
  const moves: Partial<Record<string, number>> = {
    ArrowUp: at - 1,
    ArrowDown: at + 1,
    PageUp: at - PAGE,
    PageDown: at + PAGE,
    Home: 0,
    End: rows - 1
  };
  const to = moves[key];
  if (to !== undefined) {
    const inside = Math.min(Math.max(to, 0), rows - 1);
    return { kind: 'move', to: inside, ticks: shiftKey };
  }
  const kind = ACTS[key.length === 1 ? key.toLowerCase() : key];
  return kind ? ({ kind } as KeyAct) : null;
}
