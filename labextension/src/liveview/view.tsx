/** The live view of one job. */

import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { copy } from '../clipboard';
import { Icon } from '../icons';
import type { LiveController } from './controller';
import { charts, type IChoice } from './chartdata';
import { FailureCard, Header, Numbers, StallCard, Starting } from './header';
import { Plot, type Scale } from './plot';
import { Samples } from './samples';
import { HeatStrip, PipelineStrip } from './strip';
import { csv, Tables } from './tables';
import { readTheme, type ITheme } from './theme';

export interface ILiveViewProps {
  controller: LiveController;
  commands: CommandRegistry | null;
  trans: TranslationBundle;
  isTab?: boolean;
}

const RANGES: [string, number | null][] = [
  ['10 min', 600],
  ['1 h', 3600],
  ['All', null]
];

let views = 0;

export function LiveView(props: ILiveViewProps): JSX.Element {
  const { controller, commands, trans, isTab = false } = props;
  const root = React.useRef<HTMLDivElement>(null);
  const [, redraw] = React.useReducer((n: number) => n + 1, 0);
  const [theme, setTheme] = React.useState<ITheme | null>(null);
  const [width, setWidth] = React.useState(0);
  const [range, setRange] = React.useState<number | null>(null);
  const [scale, setScale] = React.useState<Scale>('auto');
  const [isTable, setTable] = React.useState(false);
  const [choice, setChoice] = React.useState<IChoice>({
    rank: null,
    node: null
  });
  const [syncKey] = React.useState(() => `mnt-${(views += 1)}`);

  React.useEffect(() => {
    const onChange = () => !controller.paused && redraw();
    controller.changed.connect(onChange);
    return () => {
      controller.changed.disconnect(onChange);
    };
  }, [controller]);

  React.useLayoutEffect(() => {
    const node = root.current!;
    const read = () => {
      const now = readTheme(node);
      setTheme(old =>
        old && JSON.stringify(old) === JSON.stringify(now) ? old : now
      );
    };
    const measure = () => setWidth(Math.round(node.clientWidth));
    read();
    measure();
    const sizes = new ResizeObserver(measure);
    sizes.observe(node);
    // JupyterLab marks the theme on the body, and loads its colors a moment later.
    let later = 0;
    const themes = new MutationObserver(() => {
      window.clearTimeout(later);
      later = window.setTimeout(read, 100);
    });
    themes.observe(document.body, {
      attributes: true,
      attributeFilter: ['data-jp-theme-name', 'data-jp-theme-light', 'class']
    });
    const seen = new IntersectionObserver(entries => {
      controller.visible = entries[entries.length - 1].isIntersecting;
    });
    seen.observe(node);
    return () => {
      window.clearTimeout(later);
      sizes.disconnect();
      themes.disconnect();
      seen.disconnect();
    };
  }, [controller]);

  const { job, store } = controller;
  const run = (command: string, args: Record<string, string>) =>
    void commands?.execute(command, args);
  const pick = (rank: number | null) => setChoice({ ...choice, rank });
  const body = job && theme && (
    <>
      <FailureCard job={job} trans={trans} />
      <StallCard job={job} trans={trans} />
      <Header
        job={job}
        store={store}
        isLive={controller.isLive}
        isTab={isTab}
        run={run}
        can={command => commands?.hasCommand(command) ?? false}
        trans={trans}
      />
      <Numbers job={job} store={store} trans={trans} />
      <Starting job={job} trans={trans} />
      {store.hasSteps && (
        <>
          <HeatStrip {...{ store, theme, choice, pick, trans }} />
          <PipelineStrip {...{ store, theme, choice, pick, trans }} />
          <div
            className="mnt-controls"
            role="toolbar"
            aria-label={trans.__('Charts')}
          >
            <span
              className="mnt-group"
              role="group"
              aria-label={trans.__('Range')}
            >
              {RANGES.map(([label, seconds]) => (
                <button
                  key={label}
                  className="btn"
                  aria-pressed={range === seconds}
                  onClick={() => setRange(seconds)}
                >
                  {seconds === null ? trans.__('All') : label}
                </button>
              ))}
            </span>
            <label className="s">
              {trans.__('Scale')}{' '}
              <select
                value={scale}
                onChange={event => setScale(event.target.value as Scale)}
              >
                <option value="auto">{trans.__('auto')}</option>
                <option value="zero">{trans.__('linear, from 0')}</option>
                <option value="log">{trans.__('logarithmic')}</option>
              </select>
            </label>
            {store.links.size > 2 && (
              <label className="s">
                {trans.__('Link of')}{' '}
                <select
                  value={choice.node ?? ''}
                  onChange={event =>
                    setChoice({ ...choice, node: event.target.value || null })
                  }
                >
                  <option value="">{trans.__('the busiest node')}</option>
                  {[...store.links.keys()].map(node => (
                    <option key={node} value={node}>
                      {node}
                    </option>
                  ))}
                </select>
              </label>
            )}
            <span className="sp" />
            <button
              className="btn"
              aria-pressed={controller.paused}
              onClick={() => {
                controller.paused = !controller.paused;
                redraw();
              }}
            >
              <Icon name={controller.paused ? 'resume' : 'pause'} size={12} />
              {controller.paused ? trans.__('Go on') : trans.__('Pause')}
            </button>
            <button
              className="btn"
              aria-pressed={isTable}
              onClick={() => setTable(!isTable)}
            >
              <Icon name="table" size={12} /> {trans.__('Table')}
            </button>
            <button className="btn" onClick={() => void copy(csv(store))}>
              {trans.__('Copy CSV')}
            </button>
          </div>
          {isTable && <Tables job={job} store={store} trans={trans} />}
          {!isTable && width > 0 && (
            <Charts
              {...{ controller, theme, choice, scale, range, width, syncKey }}
              trans={trans}
            />
          )}
        </>
      )}
      <Samples texts={store.texts} trans={trans} />
    </>
  );
  return (
    <div
      ref={root}
      className="mnt mnt-live"
      data-mnt-step={job?.numbers.step ?? 0}
      data-mnt-live={controller.isLive}
    >
      <StillLine controller={controller} trans={trans} />
      {body}
    </div>
  );
}

function Charts(props: {
  controller: LiveController;
  theme: ITheme;
  choice: IChoice;
  scale: Scale;
  range: number | null;
  width: number;
  syncKey: string;
  trans: TranslationBundle;
}): JSX.Element {
  const { controller, theme, choice, scale, range, width, trans } = props;
  const { job, store } = controller;
  const shown = charts(store, job!, theme, choice, trans);
  let [begin, end] = [Infinity, -Infinity];
  // From the first step or evaluation on: links are counted before there is anything to see on them.
  for (const table of [
    store.job,
    store.evaluation,
    ...store.sorted.map(rows => rows.table)
  ]) {
    if (table.length) {
      begin = Math.min(begin, table.column('time_s')[0]);
      end = Math.max(end, table.last('time_s'));
    }
  }
  if (range !== null) {
    begin = Math.max(begin, end - range);
  }
  const last = shown.filter(chart => !chart.note).pop();
  return (
    <div className="mnt-charts">
      {shown.map(chart => (
        <Plot
          key={chart.key}
          chart={chart}
          theme={theme}
          scale={scale}
          range={range}
          span={[begin, end]}
          width={width}
          syncKey={props.syncKey}
          showsTime={chart === last}
          trans={trans}
        />
      ))}
    </div>
  );
}

/** Why the numbers do not move, and what to do. */
function StillLine(props: {
  controller: LiveController;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { controller, trans } = props;
  const { stillness } = controller;
  if (stillness === null || stillness === 'connecting') {
    return null;
  }
  const words: Record<typeof stillness, string> = {
    'no-server': trans.__('As it was when the notebook was saved.'),
    missing: trans.__(
      'Not live: the Jupyter server lacks jupyter_mntrain. Fix: pip install jupyter_mntrain in the environment that starts it, then restart it.'
    ),
    forbidden: trans.__(
      'Not live: this user may not see the cluster. Fix: ask whoever runs this Jupyter server.'
    ),
    retrying: trans.__(
      'The Jupyter server does not answer. These are its last values; the job goes on.'
    ),
    'other-cluster': trans.__(
      'As it was when the notebook was saved: the job belongs to cluster %1, this Jupyter server watches %2.',
      controller.cluster ?? '',
      controller.watchedCluster ?? ''
    ),
    'not-known': trans.__(
      'As it was when the notebook was saved: no node that answers knows this job.'
    )
  };
  return (
    <p className="mnt-still s">
      <Icon name="warning" size={12} /> {words[stillness]}
    </p>
  );
}
