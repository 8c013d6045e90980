/** The live view of one job. */

import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { copy } from '../clipboard';
import type { JobEntry } from '../schema';
import { Charts } from './chart_stack';
import type { ITheme } from './charts/theme';
import type { LiveController } from './controller';
import { usePage } from './page';
import { Samples } from './samples';
import { FailureCard } from './status/failure';
import { Header } from './status/header';
import { Numbers } from './status/numbers';
import { StallCard } from './status/stall';
import { Starting } from './status/starting';
import { StillLine } from './status/still';
import { PaceStrip } from './strips/pace';
import { PipelineStrip } from './strips/pipeline';
import { csv } from './tables/csv';
import { LinkTable } from './tables/links';
import { RankTable } from './tables/ranks';
import { FIRST_LOOK, Toolbar } from './toolbar';

export interface ILiveViewProps {
  controller: LiveController;
  commands: CommandRegistry | null;
  trans: TranslationBundle;
  isTab?: boolean;
}

export function LiveView(props: ILiveViewProps): JSX.Element {
  const { controller, commands, trans, isTab = false } = props;
  const root = React.useRef<HTMLDivElement>(null);
  const [, redraw] = React.useReducer((n: number) => n + 1, 0);
  React.useEffect(() => {
    const onChange = () => !controller.paused && redraw();
    controller.changed.connect(onChange);
    return () => {
      controller.changed.disconnect(onChange);
    };
  }, [controller]);
  const { theme, width } = usePage(root, controller);
  const { job, store } = controller;
  return (
    <div
      ref={root}
      className="mnt mnt-live"
      data-mnt-step={job?.numbers.step ?? 0}
      data-mnt-live={controller.isLive}
    >
      <StillLine controller={controller} trans={trans} />
      {job && theme && (
        <>
          <FailureCard job={job} trans={trans} />
          <StallCard job={job} trans={trans} />
          <Header
            job={job}
            store={store}
            isLive={controller.isLive}
            isTab={isTab}
            run={(command, args) => void commands?.execute(command, args)}
            can={command => commands?.hasCommand(command) ?? false}
            trans={trans}
          />
          <Numbers job={job} store={store} trans={trans} />
          <Starting job={job} trans={trans} />
          {store.hasSteps && (
            <Measurements
              {...{ controller, job, theme, width, redraw, trans }}
            />
          )}
          <Samples texts={store.texts} trans={trans} />
        </>
      )}
    </div>
  );
}

let views = 0;

/** Strips, and below them charts or tables, as the toolbar says. */
function Measurements(props: {
  controller: LiveController;
  job: JobEntry;
  theme: ITheme;
  width: number;
  redraw: () => void;
  trans: TranslationBundle;
}): JSX.Element {
  const { controller, job, theme, width, redraw, trans } = props;
  const { store } = controller;
  const [look, setLook] = React.useState(FIRST_LOOK);
  const [syncKey] = React.useState(() => `mnt-${(views += 1)}`);
  const { choice } = look;
  const pick = (rank: number | null) =>
    setLook({ ...look, choice: { ...choice, rank } });
  return (
    <>
      <PaceStrip {...{ store, theme, choice, pick, trans }} />
      <PipelineStrip {...{ store, theme, choice, pick, trans }} />
      <Toolbar
        store={store}
        look={look}
        change={changed => setLook({ ...look, ...changed })}
        isPaused={controller.paused}
        pause={isPaused => {
          controller.paused = isPaused;
          redraw();
        }}
        copyCsv={() => void copy(csv(store))}
        trans={trans}
      />
      {look.isTable && (
        <div className="mnt-tables">
          <RankTable job={job} store={store} trans={trans} />
          {store.links.size > 0 && <LinkTable store={store} trans={trans} />}
        </div>
      )}
      {!look.isTable && width > 0 && (
        <Charts {...{ store, job, theme, look, width, syncKey, trans }} />
      )}
    </>
  );
}
