/** Usage of a GPU or CPU: how busy it is, and how full its memory. */

import * as React from 'react';

import { Bar } from '../controls';
import * as formats from '../formats';
import type { Past } from '../history/past';
import { Measured } from '../measured';
import { trans } from '../trans';
import { LineRow } from './line';

interface IUsageProps {
  name: string;
  /** For screen readers. */
  label: string;
  /** Whose history it is. */
  part: readonly ['gpu', uuid: string] | readonly ['node'];
  past: Past | null;
  share: formats.Maybe;
  used: number;
  total: number;
  /** Why the share is unknown. */
  reason: string;
}

/** One row with meters, or a row with a line for each value. */
export function UsageRow(props: IUsageProps): JSX.Element {
  const { name, label, share, used, total, reason, past } = props;
  const percent = (
    <Measured value={share} write={formats.wholePercent} reason={reason} />
  );
  const memory = (withUnit: boolean) =>
    trans.__(
      '%1 of %2',
      formats.gibibytes(used, false),
      formats.gibibytes(total, withUnit)
    );
  if (past) {
    return (
      <UsageLines {...props} {...{ past, percent }}>
        <span title={memory(true)}>{memory(false)}</span>
      </UsageLines>
    );
  }
  return (
    <div className="mnt-gpu">
      <span>{name}</span>
      <span className="mnt-value">
        {percent}
        <Bar
          role="meter"
          share={share}
          label={trans.__('Utilization of %1', label)}
        />
      </span>
      <span className="mnt-value">
        {memory(true)}
        <Bar
          role="meter"
          share={used / total}
          label={trans.__('Memory of %1', label)}
        />
      </span>
    </div>
  );
}

function UsageLines(
  props: IUsageProps & {
    past: Past;
    percent: React.ReactNode;
    /** How much memory is used. */
    children: React.ReactNode;
  }
): JSX.Element {
  const { name, label, past, total, percent, children } = props;
  const [kind, key] = props.part;
  const figure = kind === 'gpu' ? 'utilization' : 'cpu_share';
  return (
    <>
      <LineRow
        name={name}
        label={trans.__('Utilization of %1', label)}
        line={past.line(kind, figure, key)}
        write={formats.wholePercent}
      >
        {percent}
      </LineRow>
      <LineRow
        name={trans.__('memory')}
        label={trans.__('Memory of %1', label)}
        line={past.line(kind, 'memory_bytes', key, total)}
        write={formats.memory}
      >
        {children}
      </LineRow>
    </>
  );
}
