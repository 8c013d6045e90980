/** Comparison of two to four runs, as a tab. */

import { ReactWidget } from '@jupyterlab/apputils';
import * as React from 'react';

import { Alert } from '../alert';
import { Button } from '../controls';
import type { AxisKind } from '../liveview/axis/axis';
import { smooth } from '../liveview/axis/smoothing';
import { type IZoom, shownRange } from '../liveview/axis/range';
import { runWords } from '../liveview/axis/ticks';
import type { ITheme } from '../liveview/charts/theme';
import { csvOf } from '../liveview/export/csv';
import { ExportMenu } from '../liveview/export/menu';
import { fileName } from '../liveview/export/tables';
import { usePage } from '../liveview/page';
import { Stack, wholeRange } from '../liveview/stack/stack';
import { type ChartLook, LookChoices } from '../liveview/toolbar';
import { turned } from '../runs/grid';
import type { IRun } from '../runs/run';
import type { IClusterModel } from '../tokens';
import { trans } from '../trans';
import { rankingWords } from './ranking';
import { comparedCharts, type ILettered } from './charts';
import { Comparison } from './controller';
import { Differences } from './differences';
import { Legend } from './legend';
import { LETTERS } from './letters';
import { COLUMNS, rowsOf } from './rows';
import { axisKinds, axisOf, sharedAxis } from './run_series';
import { Tables } from './tables';

export class CompareWidget extends ReactWidget {
  constructor(private comparison: Comparison) {
    super();
    this.addClass('mnt-live-widget');
  }

  protected render(): JSX.Element {
    return <CompareView comparison={this.comparison} />;
  }

  dispose(): void {
    this.comparison.dispose();
    super.dispose();
  }
}

/** @param jobIds a job of each run. */
export function compareWidget(
  model: IClusterModel,
  jobIds: string[]
): CompareWidget {
  return new CompareWidget(new Comparison(model, jobIds));
}

type Compared = ILettered & { run: IRun };

const FIRST_LOOK: ChartLook = {
  zoom: null,
  axis: 'step',
  smoothing: 0.9,
  scale: 'auto'
};

export function CompareView(props: { comparison: Comparison }): JSX.Element {
  const { comparison } = props;
  const root = React.useRef<HTMLDivElement>(null);
  const [, redraw] = React.useReducer((n: number) => n + 1, 0);
  React.useEffect(() => {
    comparison.changed.connect(redraw);
    redraw();
    return () => void comparison.changed.disconnect(redraw);
  }, [comparison]);
  const { theme, width } = usePage(root, comparison);
  const [hidden, setHidden] = React.useState<ReadonlySet<string>>(new Set());
  const runs: Compared[] = comparison.runs.map((run, place) => ({
    run,
    place,
    letter: LETTERS[place],
    series: comparison.series(run)
  }));
  const { problem, differences } = comparison;
  return (
    <div ref={root} className="mnt mnt-compare">
      <div className="row">
        <h2>{trans.__('Compare')}</h2>
        <span className="m s" role="status">
          {runs.length
            ? trans.__('%1 runs', runs.length)
            : !problem && trans.__('Asking the nodes…')}
        </span>
      </div>
      {problem && (
        <Alert problem={problem}>
          <Button label={trans.__('Try again')} run={() => comparison.read()} />
        </Alert>
      )}
      {theme && runs.length > 0 && (
        <>
          <Legend
            {...{ runs, hidden, theme }}
            turn={letter => setHidden(turned(hidden, letter))}
          />
          <Measurements
            {...{ runs, theme, width }}
            shown={runs.filter(({ letter }) => !hidden.has(letter))}
          />
        </>
      )}
      {differences && <p>{rankingWords(differences.ranking, runs)}</p>}
      {differences && (
        <Differences
          differences={differences}
          heads={runs.map(({ letter, run }) => `${letter} ${run.newest.name}`)}
        />
      )}
    </div>
  );
}

function Measurements(props: {
  runs: Compared[];
  shown: Compared[];
  theme: ITheme;
  width: number;
}): JSX.Element {
  const { runs, shown, theme, width } = props;
  const [look, setLook] = React.useState(FIRST_LOOK);
  const [isTable, setTable] = React.useState(false);
  const change = (part: Partial<ChartLook>) => setLook({ ...look, ...part });
  const kinds = axisKinds(runs.map(one => one.series));
  const kind = kinds.includes(look.axis) ? look.axis : 'step';
  return (
    <>
      <div
        className="mnt-controls"
        role="toolbar"
        aria-label={trans.__('Charts')}
      >
        <LookChoices {...{ kinds, change }} look={{ ...look, axis: kind }} />
        <span className="sp" />
        <Button
          icon="table"
          label={trans.__('Table')}
          isPressed={isTable}
          run={() => setTable(!isTable)}
        />
        <Export runs={runs} />
      </div>
      <Drawn
        {...{ shown, theme, width, look, kind, isTable }}
        zoom={zoom => change({ zoom })}
      />
    </>
  );
}

/** Charts of the runs that are not hidden, or their tables. */
function Drawn(props: {
  shown: Compared[];
  theme: ITheme;
  width: number;
  look: ChartLook;
  kind: AxisKind;
  isTable: boolean;
  zoom: (zoom: IZoom | null) => void;
}): JSX.Element | null {
  const { shown, theme, width, look, kind, isTable, zoom } = props;
  const charts = comparedCharts(shown, kind, theme).map(chart =>
    smooth(chart, look.smoothing)
  );
  const axis = sharedAxis(
    shown.map(one => one.series),
    kind
  );
  const whole = wholeRange(axis, charts);
  const span = shownRange(look.zoom, whole, whole[0]);
  const words = runWords(kind);
  if (axis.length === 0) {
    return (
      <p className="m">
        {shown.length
          ? trans.__('No steps have been read yet.')
          : trans.__('All runs are hidden: a letter above shows one.')}
      </p>
    );
  }
  if (isTable) {
    return <Tables {...{ charts, axis, span, words }} runs={shown} />;
  }
  return width > 0 ? (
    <Stack
      {...{ axis, whole, kind, theme, width, span, words, zoom }}
      shown={charts}
      lanes={shown.map(({ letter, series }) => ({
        key: letter,
        letter,
        axis: axisOf(series, kind),
        events: series.events
      }))}
      scale={look.scale}
      zoomed={look.zoom}
    />
  ) : null;
}

/** Rows of all runs, including hidden ones, and the charts as shown. */
function Export({ runs }: { runs: Compared[] }): JSX.Element {
  return (
    <ExportMenu
      csv={() =>
        csvOf(
          COLUMNS,
          runs.flatMap(({ run, series }) => rowsOf(run, series))
        )
      }
      file={end => fileName({ name: 'runs', job_id: runs[0].run.id }, end)}
      title={runs
        .map(({ letter, run }) => `${letter} ${run.newest.name}`)
        .join(', ')}
    />
  );
}
