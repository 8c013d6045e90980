/** Props shared by the parts of a live view. */

import type { JobEntry } from '../schema';
import type { SeriesStore } from '../series/store';

export interface IJobProps {
  job: JobEntry;
}

export interface IViewProps extends IJobProps {
  store: SeriesStore;
}
