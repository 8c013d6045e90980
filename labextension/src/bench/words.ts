/** Words for a benchmark's report. Pure. */

import type { BenchReport, SizeFigures } from '../schema';
import { trans } from '../trans';

type Operation = SizeFigures['operation'];

export const OPERATIONS: ReadonlyArray<Operation> = [
  'send',
  'all_reduce',
  'all_gather'
];

export function operationName(operation: Operation): string {
  switch (operation) {
    case 'send':
      return trans.__('send and receive');
    case 'all_reduce':
      return trans.__('all-reduce');
    case 'all_gather':
      return trans.__('all-gather');
  }
}

/** An operation's figures, by size. */
export function sizesOf(
  { sizes = [] }: BenchReport,
  operation: Operation
): SizeFigures[] {
  return sizes.filter(one => one.operation === operation);
}

/** Format a size in the largest unit that keeps it a whole number: 64 KiB. */
export function sizeText(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  while (unit < 3 && bytes && bytes % 1024 === 0) {
    bytes /= 1024;
    unit += 1;
  }
  return `${bytes}\u00a0${units[unit]}`;
}

/** Gloo over TCP; NCCL over NET/IB/GDRDMA (mlx5_0:1). */
export function transport({ backend, ranks = [] }: BenchReport): string {
  if (backend === 'gloo') {
    return trans.__('Gloo over TCP');
  }
  const told = (key: 'ways' | 'rails') =>
    [...new Set(ranks.flatMap(one => one.transport?.[key] ?? []))].join(', ');
  const rails = told('rails');
  const ways =
    told('ways') || trans.__('transports that its log does not show');
  return trans.__('NCCL over %1', rails ? `${ways} (${rails})` : ways);
}
