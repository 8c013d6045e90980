/** The doctor as a tab: what keeps nodes from training, worst first, with the fix. */

import { ReactWidget } from '@jupyterlab/apputils';
import * as React from 'react';

import { Alert } from '../alert';
import { useAsked } from '../asking';
import { copy } from '../clipboard';
import { Button } from '../controls';
import { problemText } from '../problem';
import type { DoctorAnswer } from '../schema';
import { type IClusterModel, RequestError } from '../tokens';
import { trans } from '../trans';
import { Mending } from './remedy';
import { counts, extent, reportText, rowsOf } from './report';
import { DoctorTable, Mark } from './table';

export interface IDoctorProps {
  model: IClusterModel;
  /** Names; empty = all. */
  nodes: string[];
  /** Also check what this job reads and writes; default nodes: its own. */
  jobId?: string;
}

export function doctorWidget(props: IDoctorProps): ReactWidget {
  const widget = ReactWidget.create(<DoctorView {...props} />);
  widget.addClass('mnt-doctor-widget');
  return widget;
}

export function DoctorView(props: IDoctorProps): JSX.Element {
  const { model, nodes, jobId } = props;
  const isDeep = React.useRef(false);
  const [doing, setDoing] = React.useState('');
  const { answer, problem, isAsking, again } = useAsked(async () => {
    const deep = isDeep.current;
    isDeep.current = false;
    setDoing('');
    return deep && jobId
      ? firstStep(model, jobId, setDoing)
      : model.api.examine(nodes, jobId);
  }, [model]);
  const mending = React.useMemo(() => ({ model, done: again }), [model, again]);
  const rows = React.useMemo(() => (answer ? rowsOf(answer) : []), [answer]);
  return (
    <div className="mnt mnt-doctor">
      <div className="mnt-controls">
        <h2 className="mnt-head-name">{trans.__('Doctor')}</h2>
        <span className="m s" role="status">
          {isAsking
            ? doing ||
              trans.__(
                'Examining %1…',
                nodes.join(', ') || jobId || trans.__('nodes')
              )
            : answer && extent(answer, rows)}
        </span>
        <span className="sp" />
        {jobId && !nodes.length && (
          <Button
            label={trans.__('Try a first step')}
            title={trans.__(
              'Starts the job on its nodes for one step, or a script until its ranks have connected; nothing is kept'
            )}
            isOff={isAsking}
            run={() => {
              isDeep.current = true;
              again();
            }}
          />
        )}
        <Button label={trans.__('Check again')} isOff={isAsking} run={again} />
        <Button
          label={trans.__('Copy report')}
          isOff={!answer}
          run={() => answer && void copy(reportText(answer))}
        />
      </div>
      {problem && <Alert problem={problem} />}
      {answer && (
        <Mending.Provider value={mending}>
          <Report examination={answer} />
        </Mending.Provider>
      )}
    </div>
  );
}

/** Starts the job; asks how far it is until it has ended, whether or not the tab is still open. */
async function firstStep(
  { api }: IClusterModel,
  jobId: string,
  say: (doing: string) => void
): Promise<DoctorAnswer> {
  for (;;) {
    const now = await api.tryFirstStep(jobId);
    if (now.problem) {
      throw new RequestError(now.problem, 0);
    }
    if (now.doctor) {
      return now.doctor;
    }
    say(now.doing ?? '');
  }
}

function Report({ examination }: { examination: DoctorAnswer }): JSX.Element {
  const { nodes, silent, time_s } = examination.report;
  const rows = rowsOf(examination);
  const found = rows.filter(row => row.found.length);
  const passed = rows.filter(row => !row.found.length);
  const names = Object.keys(silent);
  return (
    <>
      <ul className="mnt-doctor-sum">
        {counts(rows).map(([level, words]) => (
          <li key={level}>
            <Mark level={level} />
            <span className={level === 'stops' ? 'b' : ''}>{words}</span>
          </li>
        ))}
      </ul>
      {names.map(node => (
        <p key={node}>
          <Mark level="unknown" />
          {problemText({ ...silent[node], node })}
        </p>
      ))}
      {found.length > 0 && (
        <DoctorTable
          key={time_s}
          label={trans.__('Found')}
          {...{ nodes, rows: found }}
        />
      )}
      {passed.length > 0 && (
        <details>
          <summary>
            <Mark level="passed" />
            {trans._n(
              '%1 check passed on all nodes',
              '%1 checks passed on all nodes',
              passed.length
            )}
          </summary>
          <DoctorTable
            label={trans.__('Passed')}
            {...{ nodes, rows: passed }}
          />
        </details>
      )}
    </>
  );
}
