/** A remedy: a fix that the doctor can apply, after a confirmation, with its progress. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { Alert } from '../alert';
import { Bar, Button } from '../controls';
import type { IProblem } from '../problem';
import type { Remedy, WorkState } from '../schema';
import { type IClusterModel, problemOf } from '../tokens';
import { trans } from '../trans';

export interface IMending {
  model: IClusterModel;
  /** Called once a fix was applied. */
  done: () => void;
}

/** Applies the fixes in a table; `null` = none can be applied. */
export const Mending = React.createContext<IMending | null>(null);

/** Asks for confirmation, then applies the fix and shows its progress. */
export function RemedyButton(
  props: IMending & { remedy: Remedy }
): JSX.Element {
  const { remedy, model, done } = props;
  const [state, setState] = React.useState<WorkState | null>(null);
  const [problem, setProblem] = React.useState<IProblem | null>(null);
  const isShown = React.useRef(true);
  React.useEffect(() => () => void (isShown.current = false), []);

  const run = async () => {
    if (!(await isWanted(remedy))) {
      return;
    }
    setProblem(null);
    let now: WorkState = {};
    setState(now);
    try {
      // The server answers after a moment, and goes on if nobody asks.
      while (isShown.current && !now.is_over) {
        now = await model.api.mend(remedy);
        setState(now);
      }
      setProblem(now.problem ?? null);
    } catch (error) {
      now = {};
      setProblem(problemOf(error));
    }
    setState(null);
    if (isShown.current && now.is_over && !now.problem) {
      done();
    }
  };

  const { doing, done: part = 0, total } = state ?? {};
  return (
    <div className="mnt-doctor-remedy">
      <Button
        label={trans.__('Push it from %1…', remedy.source)}
        isOff={state !== null}
        run={run}
      />
      {state && (
        <span className="m s" role="status">
          {total
            ? trans.__('%1: %2 of %3', doing, part, total)
            : doing || trans.__('Starting…')}
        </span>
      )}
      {state && total ? (
        <Bar role="progressbar" share={part / total} label={doing ?? ''} />
      ) : null}
      {problem && <Alert problem={problem} />}
    </div>
  );
}

async function isWanted({ push, source, node }: Remedy): Promise<boolean> {
  const answer = await showDialog({
    title: trans.__('Push %1 to %2?', push, node),
    body: trans.__(
      '%1 sends it over the network, which a job that trains there shares. What has arrived stays if it is interrupted.',
      source
    ),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.okButton({ label: trans.__('Push') })
    ]
  });
  return answer.button.accept;
}
