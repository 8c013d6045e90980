/** Notices of jobs that end, fail or stall: in JupyterLab, the page's title, and on the desktop. */

import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import {
  failuresText,
  type INotice,
  type ISeen,
  type NoticeKind,
  noticesOf,
  seenOf
} from '../notices/notice';
import { TitleMark } from '../notices/title';
import { CommandIDs, IClusterModel } from '../tokens';
import { setting } from './setting';
import { trans, useLanguage } from '../trans';

const PLUGIN = 'jupyter-mntrain:notices';
const GOOD_NEWS_MS = 10_000;

type Wanted = 'all' | 'problems' | 'none';

const TYPES: Record<NoticeKind, Notification.TypeOptions> = {
  succeeded: 'success',
  failed: 'error',
  canceled: 'info',
  stalled: 'warning'
};

export const noticesPlugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'Notices of jobs that end, fail or stall.',
  autoStart: true,
  requires: [IClusterModel],
  optional: [ITranslator, ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    model: IClusterModel,
    translator: ITranslator | null,
    settings: ISettingRegistry | null
  ) => {
    useLanguage(translator);
    const wanted = setting<Wanted>(settings, PLUGIN, 'jobs', 'all');
    const onDesktop = setting(settings, PLUGIN, 'desktop', false, isWanted => {
      model.staysWhileHidden = isWanted;
      ask(isWanted);
    });
    const title = new TitleMark(document);
    const shown = new Map<string, string>();
    // Those that stay are told as one: five would cover a third of the page.
    let failures: INotice[] = [];
    let ofFailures = '';
    let seen: ReadonlyMap<string, ISeen> = new Map();

    const show = (notice: INotice) => {
      const { jobId, kind, text, isBad } = notice;
      title.add(isBad);
      if (onDesktop() && document.hidden) {
        tellDesktop(notice);
      }
      // A job's end replaces the notice of its stall.
      const before = shown.get(jobId);
      if (before) {
        Notification.dismiss(before);
      }
      const open = {
        label: trans.__('Show'),
        callback: () => void app.commands.execute(CommandIDs.attach, { jobId })
      };
      if (kind === 'failed') {
        showFailure(notice, open);
        shown.delete(jobId);
        return;
      }
      const id = Notification.emit(text, TYPES[kind], {
        autoClose: isBad ? false : GOOD_NEWS_MS,
        actions: [open]
      });
      shown.set(jobId, id);
    };

    const showFailure = (notice: INotice, open: Notification.IAction) => {
      const isOpen = Notification.manager.has(ofFailures);
      failures = isOpen ? [...failures, notice] : [notice];
      const all = {
        label: trans.__('All runs'),
        callback: () => void app.commands.execute(CommandIDs.runs)
      };
      // A new one, not an update: a notice that changes in its place is not seen.
      Notification.dismiss(ofFailures);
      ofFailures = Notification.emit(failuresText(failures), 'error', {
        autoClose: false,
        actions: failures.length > 1 ? [open, all] : [open]
      });
    };

    model.changed.connect(() => {
      if (model.connection !== 'live') {
        return;
      }
      const news = noticesOf(seen, model.jobs);
      seen = new Map(model.jobs.map(job => [job.job_id, seenOf(job)]));
      news
        .filter(({ isBad }) => wanted() === 'all' || isBad)
        .filter(() => wanted() !== 'none')
        .forEach(show);
    });
  }
};

/** Browsers ask their user once. */
function ask(isWanted: boolean): void {
  const desktop = window.Notification;
  if (isWanted && desktop && desktop.permission === 'default') {
    void desktop.requestPermission();
  }
}

function tellDesktop({ jobId, text }: INotice): void {
  const desktop = window.Notification;
  if (desktop && desktop.permission === 'granted') {
    const shown = new desktop(text, { tag: jobId });
    shown.onclick = () => window.focus();
  }
}
