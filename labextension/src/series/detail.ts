/** Detail: a range of a long job's steps as its nodes have them, which a page holds only downsampled. */

import type { JobSeries } from '../schema';
import { before, type Range } from '../liveview/axis/range';
import { SeriesStore } from './store';

/** A range that is still moving is not requested. */
export const SETTLED_MS = 200;

type Ask = (from: number, to: number) => Promise<JobSeries>;

/** The newest range of steps that was looked at closely. */
export class Detail {
  constructor(
    private ask: Ask,
    private onChange: () => void
  ) {}

  /**
   * Rows of these steps that are finer than those of `whole`; `null` while there are none. Asks for
   * them where `whole` has fewer rows than steps.
   */
  look(range: Range, whole: SeriesStore): SeriesStore | null {
    const wanted: Range = [Math.floor(range[0]), Math.ceil(range[1])];
    if (whole.attempt !== this.attempt) {
      this.attempt = whole.attempt;
      this.forget();
    }
    if (!isThinned(whole, wanted)) {
      return null;
    }
    const { store } = this;
    const isHeld = store !== null && holds(this.range, wanted);
    if (!isHeld || (isThinned(store, wanted) && !isSame(this.range, wanted))) {
      this.fetch(wanted, whole);
    }
    return isHeld ? store : null;
  }

  dispose(): void {
    window.clearTimeout(this.timer);
    this.asked = null;
  }

  private forget(): void {
    this.dispose();
    this.store = null;
  }

  private fetch(range: Range, whole: SeriesStore): void {
    if (this.asked && isSame(this.asked, range)) {
      return;
    }
    window.clearTimeout(this.timer);
    this.asked = range;
    this.timer = window.setTimeout(
      () => void this.take(range, whole),
      SETTLED_MS
    );
  }

  private async take(range: Range, whole: SeriesStore): Promise<void> {
    let series: JobSeries;
    try {
      series = await this.ask(...range);
    } catch {
      return; // the rows of the whole job stay; the view says why nodes do not answer
    }
    if (this.asked !== range) {
      return; // another range is looked at now
    }
    const store = new SeriesStore();
    store.take({ ...series, since: 0 });
    // Of an interface's counters, a range of steps tells nothing.
    for (const [node, rows] of whole.links) {
      if (!store.links.has(node)) {
        store.links.set(node, rows);
      }
    }
    if (store.hasSteps) {
      this.store = store;
      this.range = range;
      this.onChange();
    }
  }

  private store: SeriesStore | null = null;
  private range: Range = [0, 0];
  private asked: Range | null = null;
  private attempt = 0;
  private timer = 0;
}

/** Whether a store has fewer rows than there are steps. */
function isThinned(store: SeriesStore, [from, to]: Range): boolean {
  const steps = store.job.column('step');
  if (!steps.length) {
    return false;
  }
  const first = Math.max(from, steps[0]);
  const last = Math.min(to, steps[steps.length - 1]);
  return before(steps, last) - before(steps, first) < last - first;
}

function holds(outer: Range, [from, to]: Range): boolean {
  return outer[0] <= from && to <= outer[1];
}

function isSame(one: Range, other: Range): boolean {
  return one[0] === other[0] && one[1] === other[1];
}
