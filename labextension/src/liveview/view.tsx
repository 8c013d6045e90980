/** Live view of one job. */

import type { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import type { ITheme } from './charts/theme';
import type { LiveController } from './controller';
import { DataFold } from './data';
import { csv } from './export/csv';
import { ExportMenu } from './export/menu';
import { fileName } from './export/tables';
import { usePage } from './page';
import type { IJobProps, IViewProps } from './props';
import { recall, remember } from './remembered';
import { Samples } from './samples';
import { PartNotes } from '../part_notes';
import { ResumeBar } from '../resume/bar';
import type { Detail } from '../series/detail';
import type { IClusterModel } from '../tokens';
import { OVER } from '../words';
import { SettingsFold } from './settings';
import { FailureCard } from './status/failure';
import { Header } from './status/header';
import { Numbers } from './status/numbers';
import { Predicted } from './status/predicted';
import { WindowLines } from './status/window';
import { StallCard } from './status/stall';
import { Starting } from './status/starting';
import { StillLine } from './status/still';
import { WarningsCard } from './status/warnings';
import { Charts } from './stack/stack';
import { StepFold } from './step/fold';
import { PaceStrip } from './strips/pace';
import { PipelineStrip } from './strips/pipeline';
import { LinkTable } from './tables/links';
import { RankTable } from './tables/ranks';
import { FIRST_LOOK, type ILook, Toolbar } from './toolbar';

export interface ILiveViewProps {
  controller: LiveController;
  commands: CommandRegistry | null;
  model?: IClusterModel | null;
  isTab?: boolean;
}

export function LiveView(props: ILiveViewProps): JSX.Element {
  const { controller, commands, model = null, isTab = false } = props;
  const root = React.useRef<HTMLDivElement>(null);
  const [isPaused, pause] = React.useState(false);
  const [, redraw] = React.useReducer((n: number) => n + 1, 0);
  React.useEffect(() => {
    if (isPaused) {
      return;
    }
    controller.changed.connect(redraw);
    return () => void controller.changed.disconnect(redraw);
  }, [controller, isPaused]);
  const { theme, width } = usePage(root, controller);
  const { job, store } = controller;
  return (
    <div
      ref={root}
      className="mnt mnt-live"
      data-mnt-step={job?.numbers.step ?? 0}
      data-mnt-live={controller.isLive}
    >
      <StillLine controller={controller} />
      {job && theme && (
        <>
          <FailureCard {...{ job }} />
          <StallCard {...{ job }} />
          <PartNotes {...{ job }} />
          <WarningsCard {...{ job }} />
          <Header
            {...{ job, store, isTab }}
            isLive={controller.isLive}
            run={(command, args) => void commands?.execute(command, args)}
            isReadOnly={model?.status?.is_read_only ?? false}
            can={command => commands?.hasCommand(command) ?? false}
          />
          {model && commands && controller.isLive && (
            <ResumeBar {...{ job, model, commands }} />
          )}
          <Numbers {...{ job, store }} />
          <WindowLines {...{ job, store }} />
          <Predicted {...{ job, store }} />
          <Starting {...{ job }} />
          {store.hasSteps && (
            <Measurements
              {...{ isPaused, pause, job, store, theme, width }}
              detail={controller.detail}
            />
          )}
          <Samples texts={store.texts} />
          {store.data && <DataFold data={store.data} />}
          {controller.isLive && (
            <Folds {...{ job, controller, model, width }} />
          )}
        </>
      )}
    </div>
  );
}

/** What is read from the server when it is opened. */
function Folds(
  props: IJobProps & {
    controller: LiveController;
    model: IClusterModel | null;
    width: number;
  }
): JSX.Element {
  const { job, controller, model, width } = props;
  return (
    <>
      {model && (
        <StepFold
          read={() => model.api.trace(job.job_id)}
          isOver={OVER.has(job.state)}
          width={width}
        />
      )}
      <SettingsFold read={() => controller.settings()} />
    </>
  );
}

/** Strips, and charts or tables. */
function Measurements(
  props: IViewProps & {
    isPaused: boolean;
    pause: (isPaused: boolean) => void;
    theme: ITheme;
    width: number;
    detail: Detail;
  }
): JSX.Element {
  const { isPaused, pause, job, store, theme, width, detail } = props;
  const [look, setLook] = React.useState(() => recall(FIRST_LOOK));
  const change = (changed: Partial<ILook>) =>
    setLook(before => remember({ ...before, ...changed }));
  const { choice } = look;
  const pick = (rank: number | null) => change({ choice: { ...choice, rank } });
  const goToNow = () => {
    pause(false);
    change({ zoom: look.zoom && { ...look.zoom, follows: true } });
  };
  return (
    <>
      <PaceStrip {...{ store, theme, choice, pick }} />
      <PipelineStrip {...{ store, theme, choice, pick }} />
      <Toolbar {...{ store, look, change, isPaused, pause, goToNow }}>
        <ExportMenu
          csv={() => csv(store)}
          file={end => fileName(job, end)}
          title={`${job.name}, ${job.job_id}`}
        />
      </Toolbar>
      {look.isTable && (
        <div className="mnt-tables">
          <RankTable {...{ job, store }} />
          {store.links.size > 0 && <LinkTable {...{ job, store }} />}
        </div>
      )}
      {!look.isTable && width > 0 && (
        <Charts
          {...{ store, job, theme, choice, look, change, width, detail }}
        />
      )}
    </>
  );
}
