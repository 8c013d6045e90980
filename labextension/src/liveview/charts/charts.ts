/** The charts of a job, in their order. Pure. */

import type { IChart, IChartInput } from './chart';
import { linkChart } from './links';
import { lossChart } from './loss';
import { computeChart, mfuChart } from './shares';
import { throughputChart } from './throughput';

export function charts(input: IChartInput): IChart[] {
  const links = linkChart(input);
  const marks = input.store.summary?.marks;
  const all = [
    throughputChart(input),
    mfuChart(input),
    ...(links ? [links] : []),
    computeChart(input),
    lossChart(input)
  ];
  return all.map((chart, i) => ({
    ...chart,
    marks,
    // The lane names events; jobs saved before there was one have marks only.
    namesMarks: i === 0 && !input.store.summary?.events?.length
  }));
}
