/** Line that says why the view is not live, and the fix. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Icon } from '../../icons';
import { type IProblem, problemText } from '../../problem';
import type { LiveController, Stillness } from '../controller';

export function StillLine(props: {
  controller: LiveController;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { controller, trans } = props;
  const { stillness } = controller;
  if (stillness === null || stillness === 'connecting') {
    return null;
  }
  const text = problemText(problem(stillness, controller, trans), trans);
  return (
    <p className="mnt-still s">
      <Icon name="warning" size={12} /> {text}
    </p>
  );
}

function problem(
  stillness: Exclude<Stillness, 'connecting'>,
  controller: LiveController,
  trans: TranslationBundle
): IProblem {
  switch (stillness) {
    case 'no-server':
      return { cause: trans.__('As of when the notebook was saved') };
    case 'missing':
      return {
        cause: trans.__(
          'Not live: jupyter_mntrain is not installed on the Jupyter server'
        ),
        fix: trans.__(
          'pip install jupyter_mntrain in the environment that starts it, then restart it'
        )
      };
    case 'forbidden':
      return {
        cause: trans.__(
          'Not live: you do not have permission to see the cluster'
        ),
        fix: trans.__('ask the administrator of this Jupyter server')
      };
    case 'retrying':
      return {
        cause: trans.__(
          'The Jupyter server is not responding. These are the last values received; the job keeps running'
        )
      };
    case 'other-cluster':
      return {
        cause: trans.__(
          'As of when the notebook was saved: the job belongs to cluster %1, but this Jupyter server watches %2',
          controller.cluster ?? '',
          controller.watchedCluster ?? ''
        )
      };
    case 'not-known':
      return {
        cause: trans.__(
          'As of when the notebook was saved: no reachable node knows this job'
        )
      };
  }
}
