/** Props shared by the parts of a live view. */

import type { TranslationBundle } from '@jupyterlab/translation';

import type { JobEntry } from '../schema';
import type { SeriesStore } from '../series/store';

export interface IJobProps {
  job: JobEntry;
  trans: TranslationBundle;
}

export interface IViewProps extends IJobProps {
  store: SeriesStore;
}
