/** Charts of a node's history: use, memory, temperature, power, and each interface. Pure. */

import * as formats from '../formats';
import type { IChart, ILine } from '../liveview/charts/chart';
import { DASHES, type ITheme } from '../liveview/charts/theme';
import { shareDigits } from '../liveview/charts/chart';
import { ZOOM_BELOW } from '../schema';
import type { HistoryLine, HistoryPart, NodeHistory } from '../schema';
import { trans } from '../trans';

type Figure = HistoryLine['figure'];

/** What is drawn of a node. */
interface IInput {
  history: NodeHistory;
  theme: ITheme;
  /** Middle of each point. */
  x: Float64Array;
}

/** Axis of temperatures: idle cards are at 30 °C, and no card runs at 95. */
export const TEMPERATURES: [number, number] = [25, 95];

export function historyCharts(history: NodeHistory, theme: ITheme): IChart[] {
  const { begin_s: begin, step_s: step, points } = history;
  const x = Float64Array.from(
    { length: points },
    (_, i) => begin + (i + 0.5) * step
  );
  const input = { history, theme, x };
  const gaps = (history.gaps ?? []).map(
    one => [one.begin_s, one.end_s] as [number, number]
  );
  return [
    useChart(input),
    ...memoryCharts(input),
    plainChart(input, 'temperature_c', trans.__('Temperature'), '°C'),
    plainChart(input, 'power_w', trans.__('Power'), 'W'),
    ...partsOf(history, 'interface').map(part => networkChart(input, part))
  ]
    .filter(chart => chart.lines.length > 0)
    .map(chart => ({ ...chart, gaps }));
}

export function partsOf(
  history: NodeHistory,
  kind: HistoryPart['kind']
): HistoryPart[] {
  return (history.parts ?? []).filter(part => part.kind === kind);
}

function useChart(input: IInput): IChart {
  const nodes = partsOf(input.history, 'node');
  return {
    key: 'use',
    title: trans.__('Use'),
    subtitle:
      input.history.step_s > 1
        ? trans.__('share of the time; shaded: lowest to highest second')
        : trans.__('share of each second'),
    lines: [
      ...gpuLines(input, 'utilization', 1),
      ...nodes.flatMap(part =>
        lines(input, part, 'cpu_share', 1, {
          key: 'cpu',
          label: trans.__('CPU'),
          color: input.theme.other,
          dash: []
        })
      )
    ],
    range: [0, 1],
    format: value => formats.percent(value, 0),
    tick: value => formats.percent(value, 0),
    height: 84
  };
}

/** Of the GPUs, whose axis ends where the largest card's memory does; and of the node. */
function memoryCharts(input: IInput): IChart[] {
  const style = (parts: HistoryPart[]) => {
    const total = Math.max(0, ...parts.map(part => part.total ?? 0)) / 2 ** 30;
    return {
      subtitle: trans.__('GiB of %1', formats.plain(total, 1)),
      range: [0, total || 1] as [number, number],
      format: (value: number) => formats.memory(value * 2 ** 30),
      tick: formats.plain,
      height: 64
    };
  };
  const [gpus, nodes] = [
    partsOf(input.history, 'gpu'),
    partsOf(input.history, 'node')
  ];
  return [
    {
      ...style(gpus),
      key: 'gpu-memory',
      title: trans.__('GPU memory'),
      lines: gpuLines(input, 'memory_bytes', 2 ** 30)
    },
    {
      ...style(nodes),
      key: 'memory',
      title: trans.__('Memory'),
      lines: nodes.flatMap(part =>
        lines(input, part, 'memory_bytes', 2 ** 30, {
          key: 'node',
          label: trans.__('used'),
          color: input.theme.other,
          dash: []
        })
      )
    }
  ];
}

function plainChart(
  input: IInput,
  figure: Figure,
  title: string,
  unit: string
): IChart {
  return {
    key: figure,
    title,
    subtitle: unit,
    lines: gpuLines(input, figure, 1),
    range: figure === 'temperature_c' ? TEMPERATURES : undefined,
    format: value => `${formats.count(value)}\u00a0${unit}`,
    tick: formats.plain,
    height: 64
  };
}

/** All traffic of a direction, and the ranks' part of it; what is received counts below zero. */
function direction(
  { theme, x }: IInput,
  part: HistoryPart,
  which: 'sent' | 'received',
  label: string
): ILine[] {
  const [sign, number] = which === 'sent' ? [1, 0] : [-1, 1];
  const scale = part.total ?? 1;
  const values = (figure: Figure) =>
    Float64Array.from(
      part.lines?.find(line => line.figure === figure)?.mean ?? [],
      value => (value === null ? NaN : (sign * value) / scale)
    );
  const own = values(`own_${which}_bytes_per_s`);
  const base = { x, dash: [], keepsGaps: true, color: theme.fill };
  const key = `all-${number}`;
  const ranks = {
    ...base,
    key: `own-${number}`,
    label: trans.__('%1, training', label),
    y: own,
    width: 1,
    isFilled: true,
    fillTo: key,
    fillKind: 'hatch' as const,
    isQuiet: true
  };
  const y = values(`${which}_bytes_per_s`);
  const line = { ...base, key, label, y, width: 1.5 };
  return [line, ...(own.length ? [ranks] : [])].filter(one => one.y.length);
}

/** What it sends above zero, what it receives below; the ranks' part is filled. */
function networkChart(input: IInput, part: HistoryPart): IChart {
  const isShare = Boolean(part.total);
  const both = [
    ...direction(input, part, 'sent', trans.__('↑ out')),
    ...direction(input, part, 'received', trans.__('↓ in'))
  ];
  const top = both
    .flatMap(line => [...line.y])
    .reduce((most, y) => (Math.abs(y) > most ? Math.abs(y) : most), 0);
  const isZoomed = !isShare || top < ZOOM_BELOW;
  return {
    key: `network-${part.key}`,
    title: trans.__('Network %1', part.key ?? ''),
    subtitle: isShare
      ? trans.__(
          '↑ out above, ↓ in below; 100 % = %1; filled: training, hatched: the rest of that time',
          formats.bitRate(part.total)
        )
      : trans.__('↑ out above, ↓ in below; capacity not measured'),
    lines: both,
    isMirrored: true,
    limit: isZoomed ? Math.max(1.25 * top, 1e-9) : Math.max(1.02, top),
    format: value =>
      (isShare ? formats.percent : formats.bitRate)(Math.abs(value)),
    tick: (value, step) =>
      isShare
        ? formats.percent(Math.abs(value), shareDigits(step))
        : formats.shortBitRate(Math.abs(value)),
    height: 96
  };
}

function gpuLines(input: IInput, figure: Figure, unit: number): ILine[] {
  return partsOf(input.history, 'gpu').flatMap((part, i) => {
    const number = part.index ?? i;
    return lines(input, part, figure, unit, {
      key: `gpu-${part.key}`,
      label: trans.__('GPU %1', number),
      color: input.theme.ranks[number % 4],
      dash: DASHES[number % 4]
    });
  });
}

/** The means of a figure, and the area from the lowest to the highest second of each point. */
function lines(
  { x }: IInput,
  part: HistoryPart,
  figure: Figure,
  unit: number,
  style: Pick<ILine, 'key' | 'label' | 'color' | 'dash'>
): ILine[] {
  const found = part.lines?.find(line => line.figure === figure);
  if (!found) {
    return [];
  }
  const values = (of: (number | null)[]) =>
    Float64Array.from(of, value => (value === null ? NaN : value / unit));
  const line = { ...style, x, width: 1.5, keepsGaps: true };
  const edge = { ...line, width: 0, isQuiet: true };
  const { key } = style;
  return [
    ...(found.high?.length && found.low?.length
      ? [
          { ...edge, key: `${key}-high`, y: values(found.high) },
          {
            ...edge,
            key: `${key}-low`,
            y: values(found.low),
            fillTo: `${key}-high`,
            fillKind: 'band' as const
          }
        ]
      : []),
    { ...line, y: values(found.mean) }
  ];
}
