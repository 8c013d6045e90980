/** History of a node as a tab: jobs above, then its charts on one time axis. */

import { ReactWidget } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { Alert } from '../alert';
import { copy } from '../clipboard';
import { Button, Select } from '../controls';
import * as formats from '../formats';
import { nearest, type Range, valueAt } from '../liveview/axis/range';
import type { IChart } from '../liveview/charts/chart';
import { Plot, plotArea } from '../liveview/charts/plot';
import type { ITheme } from '../liveview/charts/theme';
import { usePage } from '../liveview/page';
import { Flag } from '../liveview/stack/flag';
import type { IProblem } from '../problem';
import type { HistoryGap, NodeHistory } from '../schema';
import { CommandIDs, type IClusterModel } from '../tokens';
import { trans } from '../trans';
import { Brackets } from './brackets';
import { historyCharts, partsOf } from './charts';
import { historyCsv } from './csv';
import { Seer, type Span, SPANS, useHistory } from './reading';
import { HistoryTable } from './table';

/** About the width of a chart in pixels; both ends of 10 minutes, second by second. */
const POINTS = 601;

/** Number of newest gaps that are described. */
const TOLD = 3;

export interface IHistoryProps {
  model: IClusterModel;
  commands: CommandRegistry;
  /** The node's. */
  nodeKey: string;
}

export function historyWidget(props: IHistoryProps): ReactWidget {
  const widget = ReactWidget.create(<HistoryView {...props} />);
  widget.addClass('mnt-history-widget');
  return widget;
}

export function HistoryView(props: IHistoryProps): JSX.Element {
  const { model, commands, nodeKey } = props;
  const root = React.useRef<HTMLDivElement>(null);
  const [seer] = React.useState(() => new Seer());
  const [key, setKey] = React.useState(nodeKey);
  const [span, setSpan] = React.useState<Span>(3600);
  const [isTable, setTable] = React.useState(false);
  const { theme, width } = usePage(root, seer);
  const wanted = { key, span, points: POINTS };
  const isSeen = () => seer.visible;
  const { history, problem } = useHistory(model, wanted, isSeen);
  const node = model.nodes.find(one => one.key === key);
  const charts = React.useMemo(
    () => (history && theme ? historyCharts(history, theme) : []),
    [history, theme]
  );
  return (
    <div ref={root} className="mnt mnt-history" data-span={span}>
      <div className="mnt-controls">
        <Select
          label={trans.__('Node')}
          value={key}
          options={model.nodes.map(one => [one.key, one.name] as const)}
          pick={setKey}
        />
        <span role="group" aria-label={trans.__('Time shown')}>
          {SPANS.map(one => (
            <Button
              key={one}
              label={spanName(one)}
              isPressed={one === span}
              run={() => setSpan(one)}
            />
          ))}
        </span>
        <span className="sp" />
        <Button
          label={trans.__('Table')}
          isPressed={isTable}
          run={() => setTable(!isTable)}
        />
        <Button
          label={trans.__('Copy CSV')}
          isOff={!history}
          run={() => history && void copy(historyCsv(history))}
        />
      </div>
      <Waiting {...{ history, problem }} name={node?.name} />
      {history && isTable && <HistoryTable charts={charts} />}
      {history && theme && width > 0 && !isTable && (
        <Charts
          {...{ history, charts, theme, width }}
          open={jobId => void commands.execute(CommandIDs.attach, { jobId })}
        />
      )}
      {history && <Notes history={history} />}
    </div>
  );
}

/** Why there is nothing to see yet. */
function Waiting(props: {
  history: NodeHistory | null;
  problem: IProblem | null;
  name?: string;
}): JSX.Element | null {
  const { history, problem, name } = props;
  if (problem) {
    return <Alert problem={problem} />;
  }
  return history ? null : (
    <p className="m s">
      {trans.__('Asking %1…', name ?? trans.__('the node'))}
    </p>
  );
}

function spanName(span: Span): string {
  return {
    600: trans.__('10 min'),
    3600: trans.__('1 h'),
    86400: trans.__('24 h'),
    604800: trans.__('Week')
  }[span];
}

function Charts(props: {
  history: NodeHistory;
  charts: IChart[];
  theme: ITheme;
  width: number;
  open: (jobId: string) => void;
}): JSX.Element {
  const { history, charts, theme, width, open } = props;
  const { begin_s: begin, step_s: step, points } = history;
  const span: Range = [begin, begin + step * points];
  const area = plotArea(width);
  const xs = charts[0]?.lines[0]?.x ?? new Float64Array();
  const { pointed, handlers } = usePointer(xs, span, area);
  return (
    <div
      className="mnt-charts"
      role="group"
      tabIndex={0}
      aria-label={trans.__('History of %1', history.node)}
      data-lm-suppress-shortcuts="true"
      {...handlers}
    >
      <Flag
        {...{ area, width, span }}
        x={pointed}
        said={null}
        text={pointed === null ? '' : formats.clock(pointed, step < 60)}
      />
      <Brackets {...{ span, area, open }} jobs={history.jobs ?? []} />
      {charts.map((chart, i) => (
        <Plot
          key={chart.key}
          {...{ chart, theme, span, width, pointed }}
          scale="auto"
          axis="time"
          readAt={null}
          selection={null}
          showsAxis={i === charts.length - 1}
        />
      ))}
    </div>
  );
}

/** The sample pointed at, by mouse or by arrow keys. */
function usePointer(
  xs: Float64Array,
  span: Range,
  area: ReturnType<typeof plotArea>
): { pointed: number | null; handlers: React.HTMLAttributes<HTMLElement> } {
  const [at, setAt] = React.useState<number | null>(null);
  const pointed = at === null ? null : (xs[nearest(xs, at)] ?? null);
  const point = (event: React.PointerEvent<HTMLElement>) => {
    const { left } = event.currentTarget.getBoundingClientRect();
    const x = valueAt(event.clientX - left, span, area.left, area.width);
    setAt(x >= span[0] && x <= span[1] ? x : null);
  };
  const press = (event: React.KeyboardEvent) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === 'Escape') {
      setAt(null);
    } else if (by && event.target === event.currentTarget) {
      const row = pointed === null ? xs.length : nearest(xs, pointed) + by;
      setAt(xs[Math.max(0, Math.min(xs.length - 1, row))]);
      event.preventDefault();
    }
  };
  const handlers = {
    onPointerMove: point,
    onPointerLeave: () => setAt(null),
    onKeyDown: press
  };
  return { pointed, handlers };
}

/** Notes: the resolution, why there are no GPUs, and when values are missing. */
function Notes({ history }: { history: NodeHistory }): JSX.Element {
  const { gaps = [], gpu_note: why, step_s: step } = history;
  return (
    <div className="mnt-history-notes m s">
      {(history.parts ?? []).length === 0 && (
        <p>{trans.__('No values were recorded in this time.')}</p>
      )}
      <p>
        {trans.__(
          'One point is %1. Kept: one value per second for an hour, per minute for a day, per 10 minutes for a week.',
          formats.duration(step)
        )}
      </p>
      {why && partsOf(history, 'gpu').length === 0 && (
        <p>{trans.__('GPUs: n/a, %1', why)}</p>
      )}
      {gaps.slice(-TOLD).map(gap => (
        <p key={gap.begin_s}>{gapText(gap)}</p>
      ))}
      {gaps.length > TOLD && (
        <p>
          {trans._n(
            '%1 earlier gap without values.',
            '%1 earlier gaps without values.',
            gaps.length - TOLD
          )}
        </p>
      )}
    </div>
  );
}

export function gapText({ begin_s, end_s, state }: HistoryGap): string {
  const withSeconds = end_s - begin_s < 120;
  return trans.__(
    '%1 to %2: no values, %3.',
    formats.clock(begin_s, withSeconds),
    formats.clock(end_s, withSeconds),
    {
      off: trans.__('the agent did not run'),
      suspended: trans.__('the node was suspended, or its agent could not run'),
      before: trans.__('the node had recorded none yet')
    }[state]
  );
}
