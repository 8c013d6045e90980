/** Measurements of a node: hardware and interfaces, with their last hour where there is room. */

import * as React from 'react';

import * as formats from '../formats';
import { Past } from '../history/past';
import { useHistory } from '../history/reading';
import { problemText } from '../problem';
import type { NodeEntry } from '../schema';
import { CommandIDs } from '../tokens';
import { trans } from '../trans';
import { Hardware } from './hardware';
import { Interfaces } from './interfaces';
import type { IContext } from './parts';

/** One point is half a minute, about a pixel. */
const LAST_HOUR = { span: 3600, points: 120 };

export function Measurements(
  props: IContext & { node: NodeEntry }
): JSX.Element {
  if (props.hasLines) {
    return <WithLines {...props} />;
  }
  return (
    <>
      <Hardware {...props} past={null} />
      <Interfaces {...props} past={null} />
    </>
  );
}

function WithLines(props: IContext & { node: NodeEntry }): JSX.Element {
  const { model, node, commands, isSeen } = props;
  const { key, view } = node;
  const { history, readMs, problem } = useHistory(
    model,
    { key, ...LAST_HOUR },
    () => isSeen() && view.liveness !== 'lost'
  );
  const past = new Past(history, (performance.now() - readMs) / 1000);
  const isUp = view.liveness === 'up';
  return (
    <>
      <p className="m s mnt-past-head">
        <span>
          {isUp
            ? trans.__('last hour')
            : trans.__(
                'values until %1',
                formats.clock(view.last_seen_s, true)
              )}
          {isUp && problem && trans.__(': n/a, %1', problemText(problem))}
        </span>
        <button
          className="mnt-textlink"
          onClick={() => void commands.execute(CommandIDs.nodeHistory, { key })}
        >
          {trans.__('Open history')}
        </button>
      </p>
      <Hardware {...props} past={past} />
      <Interfaces {...props} past={past} />
    </>
  );
}
