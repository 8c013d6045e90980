/** Offer of an ended job's run, asked for once it is shown, and again when a job or node changes. */

import * as React from 'react';

import type { JobEntry, ResumeOffer } from '../schema';
import type { IClusterModel } from '../tokens';
import { readOffer } from './texts';

interface IOffered {
  /** `null` until the nodes have been asked. */
  offer: ResumeOffer | null;
  setOffer: (offer: ResumeOffer) => void;
  /** The nodes could not be asked. */
  hasFailed: boolean;
}

export function useOffer(job: JobEntry, model: IClusterModel): IOffered {
  const [offer, setOffer] = React.useState<ResumeOffer | null>(null);
  const [hasFailed, fail] = React.useState(false);
  const [situation, setSituation] = React.useState(() =>
    situationOf(job, model)
  );
  const jobId = job.job_id;
  React.useEffect(() => {
    // The view is redrawn for its own job only; here others count, too.
    const look = () => setSituation(situationOf(job, model));
    look();
    model.changed.connect(look);
    return () => void model.changed.disconnect(look);
  }, [job, model]);
  React.useEffect(() => {
    let isGone = false;
    model.api.resumeOffer(jobId).then(
      given => isGone || (setOffer(readOffer(given)), fail(false)),
      () => isGone || fail(true)
    );
    return () => {
      isGone = true;
    };
  }, [model, jobId, situation]);
  return { offer, setOffer, hasFailed };
}

/** Changes when the offer may: with every newer job's state, and with every node that comes or goes. */
function situationOf(job: JobEntry, { jobs, nodes }: IClusterModel): string {
  const others = jobs
    .filter(one => one.submitted_s >= job.submitted_s)
    .map(one => `${one.job_id} ${one.state}`);
  const places = nodes.map(({ key, view }) => `${key} ${view.liveness}`);
  return [...others, ...places].join();
}
