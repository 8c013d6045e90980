/** The job's numbers now, each with its name. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import * as formats from '../../formats';
import type { JobEntry } from '../../schema';
import type { SeriesStore } from '../../series/store';
import { Measured } from '../../measured';

interface ITile {
  label: string;
  value: formats.Maybe | formats.NonFinite;
  write: (value: any) => string;
  /** Why it is n/a, where it is. */
  reason?: string;
}

export function Numbers(props: {
  job: JobEntry;
  store: SeriesStore;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { job, store, trans } = props;
  if (!job.numbers.step) {
    return null;
  }
  return (
    <dl className="mnt-numbers">
      {tiles(job, store, trans).map(({ label, ...measured }) => (
        <div key={label}>
          <dt className="m s">{label}</dt>
          <dd>
            <Measured {...measured} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function tiles(
  { numbers }: JobEntry,
  store: SeriesStore,
  trans: TranslationBundle
): ITile[] {
  const tooFew = trans.__('The job has finished too few steps.');
  const shown: ITile[] = [
    {
      label: trans.__('tok/s'),
      value: numbers.tokens_per_s,
      write: formats.rate,
      reason: tooFew
    },
    {
      label: trans.__('job MFU'),
      value: numbers.mfu,
      write: formats.percent,
      reason: trans.__(
        'The peak of these devices or the model’s FLOPs are not known.'
      )
    },
    {
      label: trans.__('step time'),
      value: numbers.step_s,
      write: formats.seconds,
      reason: tooFew
    },
    {
      label: trans.__('bubble'),
      value: numbers.bubble,
      write: formats.percent,
      reason: trans.__('The ranks do not report their compute time.')
    },
    {
      label: trans.__('busiest link'),
      ...busiestLink(store),
      reason: trans.__('No traffic has been counted yet.')
    },
    {
      label: trans.__('loss'),
      value: numbers.loss,
      write: formats.loss,
      reason: trans.__('No rank reports a loss.')
    }
  ];
  if (formats.isKnown(numbers.evaluation_loss)) {
    shown.push({
      label: trans.__('evaluation'),
      value: numbers.evaluation_loss,
      write: formats.loss
    });
  }
  return shown;
}

/** How full the fullest link is; what it carries, where a capacity is not known. */
function busiestLink(store: SeriesStore): Pick<ITile, 'value' | 'write'> {
  const links = [...store.links.values()];
  const isShare = links.every(({ link }) => link.capacity_bytes_per_s);
  const loads = links.flatMap(({ link, now }) =>
    [now.sent, now.received].map(
      load => load / (isShare ? link.capacity_bytes_per_s! : 1)
    )
  );
  const known = loads.filter(load => !Number.isNaN(load));
  const most = known.length ? Math.max(...known) : null;
  return {
    value: most,
    write: isShare
      ? value => formats.percent(value, most! < 0.001 ? 2 : 1)
      : formats.bitRate
  };
}
