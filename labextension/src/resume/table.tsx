/** List of a run's checkpoints, each with its actions. */

import * as React from 'react';

import { Button } from '../controls';
import * as formats from '../formats';
import { Icon } from '../icons';
import type { ResumeOffer, RunCheckpoint } from '../schema';
import { trans } from '../trans';
import { checkpointState, isWhole, saved } from './texts';

export type Change = 'pin' | 'unpin' | 'delete';

export interface ITableProps {
  offer: ResumeOffer;
  /** Start a new run from one; `null` = not possible here. */
  begin: ((one: RunCheckpoint) => unknown) | null;
  change: (one: RunCheckpoint, action: Change) => unknown;
}

export function CheckpointTable(props: ITableProps): JSX.Element {
  const { offer } = props;
  const rows = saved(offer);
  if (!rows.length) {
    return <p>{trans.__('The nodes that answer have no checkpoints.')}</p>;
  }
  return (
    <div className="mnt-tables">
      <table className="mnt-checkpoints">
        <thead>
          <tr>
            <th scope="col">{trans.__('step')}</th>
            <th scope="col">{trans.__('saved')}</th>
            <th scope="col">{trans.__('size')}</th>
            <th scope="col">{trans.__('where')}</th>
            <th scope="col">{trans.__('state')}</th>
            <td />
          </tr>
        </thead>
        <tbody>
          {rows.map(one => (
            <Row key={`${one.attempt} ${one.step}`} {...props} one={one} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row(props: ITableProps & { one: RunCheckpoint }): JSX.Element {
  const { offer, one, begin, change } = props;
  const step = formats.count(one.step);
  const whole = isWhole(one);
  const pinned = one.is_pinned ?? false;
  return (
    <tr>
      <th scope="row">{step}</th>
      <td>{formats.clock(one.saved_s)}</td>
      <td>{formats.memory(one.size_bytes)}</td>
      <td>{Object.keys(one.nodes).join(', ')}</td>
      <td>
        <Icon name={whole ? 'succeeded' : 'warning'} size={12} />{' '}
        {checkpointState(offer, one)}
      </td>
      <td>
        <span className="row">
          {whole && begin && (
            <Button
              label={trans.__('New run from here')}
              title={trans.__(
                'Start a new run from the checkpoint of step %1; this run keeps its checkpoints.',
                step
              )}
              run={() => begin(one)}
            />
          )}
          <Button
            label={pinned ? trans.__('Pinned') : trans.__('Pin')}
            isPressed={pinned}
            title={
              pinned
                ? trans.__('Unpin: newer ones may replace it again')
                : trans.__('Keep it: newer ones do not replace it')
            }
            run={() => change(one, pinned ? 'unpin' : 'pin')}
          />
          <Button
            label={trans.__('Delete…')}
            isOff={pinned}
            title={pinned ? trans.__('Unpin it first') : undefined}
            run={() => change(one, 'delete')}
          />
        </span>
      </td>
    </tr>
  );
}
