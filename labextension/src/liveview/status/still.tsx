/** Line that says why the view is not live, and the fix. */

import * as React from 'react';

import * as formats from '../../formats';
import { Icon } from '../../icons';
import { type IProblem, problemText } from '../../problem';
import type { LiveController, Stillness } from '../controller';
import { trans } from '../../trans';

export function StillLine(props: {
  controller: LiveController;
}): JSX.Element | null {
  const { controller } = props;
  const { stillness, writtenAt } = controller;
  if (stillness === null || stillness === 'connecting') {
    return null;
  }
  const text = problemText(problem(stillness, controller));
  return (
    <p className="mnt-still s">
      <Icon name="warning" size={12} /> {text}
      {writtenAt !== null && (
        <>
          {' '}
          <time dateTime={new Date(1000 * writtenAt).toISOString()}>
            {trans.__('Written %1.', formats.dateTime(writtenAt))}
          </time>
        </>
      )}
    </p>
  );
}

function problem(
  stillness: Exclude<Stillness, 'connecting'>,
  { cluster, watchedCluster }: LiveController
): IProblem {
  const problems: Record<typeof stillness, IProblem> = {
    'no-server': {
      cause: trans.__('Values are from when the notebook was saved')
    },
    missing: {
      cause: trans.__(
        'Not live: jupyter_mntrain is not installed on the Jupyter server'
      ),
      fix: trans.__(
        'install jupyter_mntrain in the environment that starts it, then restart it'
      )
    },
    forbidden: {
      cause: trans.__(
        'Not live: you do not have permission to see the cluster'
      ),
      fix: trans.__('ask the administrator of this Jupyter server')
    },
    retrying: {
      cause: trans.__(
        'The Jupyter server is not responding. These are the last values received; the job keeps running'
      )
    },
    'other-cluster': {
      cause: trans.__(
        'Values are from when the notebook was saved: the job belongs to cluster %1, but this Jupyter server watches %2',
        cluster ?? '',
        watchedCluster ?? ''
      )
    },
    'not-known': {
      cause: trans.__(
        'Values are from when the notebook was saved: no reachable node knows this job'
      )
    }
  };
  return problems[stillness];
}
