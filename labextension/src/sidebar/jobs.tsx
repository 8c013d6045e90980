/** Job list: running jobs, then the newest ended ones. */

import * as React from 'react';

import { CommandIDs } from '../tokens';
import { OVER } from '../words';
import { Job } from './job';
import type { IContext } from './parts';
import { trans } from '../trans';

/** Number of ended jobs listed. */
const MOST_ENDED = 10;

export function Jobs(props: IContext): JSX.Element {
  const { model, commands } = props;
  const open = model.jobs.filter(job => !OVER.has(job.state));
  const ended = model.jobs.filter(job => OVER.has(job.state));
  const [isAll, setAll] = React.useState(false);
  const shown = [...open, ...(isAll ? ended : ended.slice(0, MOST_ENDED))];
  if (shown.length === 0) {
    return (
      <p className="mnt-indent m">
        {trans.__('Nothing has run yet. Launch a recipe, or run a cell with')}{' '}
        <code>%%mntrain launch</code>.
      </p>
    );
  }
  return (
    <>
      <ul className="mnt-list">
        {shown.map(job => (
          <Job key={job.job_id} job={job} {...props} />
        ))}
      </ul>
      <p className="mnt-indent">
        {ended.length > MOST_ENDED && !isAll && (
          <>
            <button className="mnt-textlink" onClick={() => setAll(true)}>
              {trans.__('Show all %1', model.jobs.length)}
            </button>{' '}
          </>
        )}
        <button
          className="mnt-textlink"
          onClick={() => commands.execute(CommandIDs.runs)}
        >
          {trans.__('All runs')}
        </button>
      </p>
    </>
  );
}
