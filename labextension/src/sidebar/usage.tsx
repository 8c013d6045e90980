/** Usage row: how busy a GPU or CPU is, and how full its memory. */

import * as React from 'react';

import { Bar } from '../controls';
import * as formats from '../formats';
import { Measured } from '../measured';
import { trans } from '../trans';

export function UsageRow(props: {
  name: string;
  /** For those who hear it. */
  label: string;
  share: formats.Maybe;
  used: number;
  total: number;
  /** Why the share is unknown. */
  reason: string;
}): JSX.Element {
  const { name, label, share, used, total, reason } = props;
  return (
    <div className="mnt-gpu">
      <span>{name}</span>
      <span className="mnt-value">
        <Measured value={share} write={formats.wholePercent} reason={reason} />
        <Bar
          role="meter"
          share={share}
          label={trans.__('Utilization of %1', label)}
        />
      </span>
      <span className="mnt-value">
        {trans.__(
          '%1 of %2',
          formats.gibibytes(used, false),
          formats.gibibytes(total)
        )}
        <Bar
          role="meter"
          share={used / total}
          label={trans.__('Memory of %1', label)}
        />
      </span>
    </div>
  );
}
