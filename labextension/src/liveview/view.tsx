/** Live view of one job. */

import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { copy } from '../clipboard';
import { Charts } from './chart_stack';
import type { ITheme } from './charts/theme';
import type { LiveController } from './controller';
import { usePage } from './page';
import type { IViewProps } from './props';
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
          <FailureCard {...{ job, trans }} />
          <StallCard {...{ job, trans }} />
          <Header
            {...{ job, store, isTab, trans }}
            isLive={controller.isLive}
            run={(command, args) => void commands?.execute(command, args)}
            can={command => commands?.hasCommand(command) ?? false}
          />
          <Numbers {...{ job, store, trans }} />
          <Starting {...{ job, trans }} />
          {store.hasSteps && (
            <Measurements
              {...{ controller, job, store, theme, width, redraw, trans }}
            />
          )}
          <Samples texts={store.texts} trans={trans} />
        </>
      )}
    </div>
  );
}

let views = 0;

/** Strips, and charts or tables. */
function Measurements(
  props: IViewProps & {
    controller: LiveController;
    theme: ITheme;
    width: number;
    redraw: () => void;
  }
): JSX.Element {
  const { controller, job, store, theme, width, redraw, trans } = props;
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
          <RankTable {...{ job, store, trans }} />
          {store.links.size > 0 && <LinkTable {...{ job, store, trans }} />}
        </div>
      )}
      {!look.isTable && width > 0 && (
        <Charts
          {...{ store, job, theme, choice, look, width, syncKey, trans }}
        />
      )}
    </>
  );
}
