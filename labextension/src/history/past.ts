/** The last hour of a node, as lines of fixed scale without axes. Pure. */

import type { Range } from '../liveview/axis/range';
import type { HistoryLine, HistoryPart, NodeHistory } from '../schema';
import { TEMPERATURES } from './charts';

/** Of a line's box, in its own units: it is stretched to what there is. */
export const BOX = { width: 120, height: 14 };

export interface IPastLine {
  /** In the box; not joined across times without values. */
  path: string;
  lowest: number;
  highest: number;
}

type Figure = HistoryLine['figure'];

export class Past {
  /** @param age seconds since the history was read: the time goes on where values end. */
  constructor(
    private history: NodeHistory | null,
    private age: number
  ) {}

  /**
   * A figure of the node, or of the GPU or interface with this key.
   *
   * @param total where the scale ends, if the agent does not know the part's own.
   * @returns null where there are no values yet, or no end of the scale.
   */
  line(
    kind: HistoryPart['kind'],
    figure: Figure,
    key = '',
    total?: number | null
  ): IPastLine | null {
    const part = this.history?.parts?.find(
      one => one.kind === kind && (one.key ?? '') === key
    );
    const values = part?.lines?.find(one => one.figure === figure)?.mean ?? [];
    const known = values.filter(one => one !== null);
    const scale = scaleOf(figure, part?.total ?? total);
    return known.length && scale
      ? {
          path: this.path(values, scale),
          lowest: known.reduce((a, b) => Math.min(a, b)),
          highest: known.reduce((a, b) => Math.max(a, b))
        }
      : null;
  }

  private path(
    values: ReadonlyArray<number | null>,
    [low, high]: Range
  ): string {
    const { step_s: step, points } = this.history!;
    const { width, height } = BOX;
    return values
      .flatMap((value, i) => {
        const x = ((i + 0.5) * step - this.age) / (step * points);
        if (value === null || x < 0) {
          return [];
        }
        const share = Math.min(1, Math.max(0, (value - low) / (high - low)));
        const at = [x * width, (1 - share) * height].map(one => one.toFixed(1));
        // A value between gaps is a dot.
        const isFirst = i === 0 || values[i - 1] === null;
        return [`${isFirst ? 'M' : 'L'}${at.join(' ')}${isFirst ? 'h0' : ''}`];
      })
      .join('')
      .replace(/^L/, 'M');
  }
}

function scaleOf(figure: Figure, total?: number | null): Range | null {
  switch (figure) {
    case 'cpu_share':
    case 'utilization':
      return [0, 1];
    case 'temperature_c':
      return TEMPERATURES;
    default:
      return total ? [0, total] : null;
  }
}
