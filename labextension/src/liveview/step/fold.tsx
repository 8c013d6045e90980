/** Step: a fold with a job's newest recorded step, and the one that its plan predicted. */

import * as React from 'react';

import * as formats from '../../formats';
import { type IProblem, problemText } from '../../problem';
import type { JobTrace } from '../../schema';
import { problemOf } from '../../tokens';
import { trans } from '../../trans';
import { Gantt, type ITitled } from './gantt';

/** Steps are recorded within seconds at first, later rarely. */
const NEXT_MS = 15_000;

/** Polls them while it is open, until the job is over. */
export function StepFold(props: {
  read: () => Promise<JobTrace>;
  isOver: boolean;
  width: number;
}): JSX.Element {
  const { isOver, width } = props;
  const [isOpen, open] = React.useState(false);
  const [trace, setTrace] = React.useState<JobTrace>({});
  const [problem, setProblem] = React.useState<IProblem | null>(null);
  const fold = React.useRef<HTMLDetailsElement>(null);
  React.useEffect(() => {
    if (!isOpen) {
      return;
    }
    const look = () => {
      if (isSeen(fold.current!)) {
        props
          .read()
          .then(found => {
            setTrace(found);
            setProblem(null);
          })
          .catch(error => setProblem(problemOf(error)));
      }
    };
    look();
    const timer = isOver ? 0 : window.setInterval(look, NEXT_MS);
    return () => window.clearInterval(timer);
  }, [isOpen, isOver]);
  const steps = React.useMemo(() => stepsOf(trace), [trace]);
  const missing = problem ?? trace.not_recorded ?? trace.not_predicted;
  return (
    <details
      ref={fold}
      className="mnt-settings-fold"
      onToggle={event => open(event.currentTarget.open)}
    >
      <summary>{trans.__('Schedule of one step')}</summary>
      {isOpen && <Gantt {...{ steps, width }} />}
      {missing && <p role="status">{problemText(missing)}</p>}
    </details>
  );
}

/** Hidden tabs of the browser or of JupyterLab do not poll. */
function isSeen(node: HTMLElement): boolean {
  return !document.hidden && node.checkVisibility?.() !== false;
}

function stepsOf({ recorded, predicted }: JobTrace): ITitled[] {
  const steps: ITitled[] = [];
  if (recorded) {
    const title = trans.__('step %1', formats.count(recorded.spans.step));
    steps.push({ title, step: recorded });
  }
  if (predicted) {
    steps.push({ title: trans.__('predicted'), step: predicted });
  }
  return steps;
}
