/** Export menu: CSV to the clipboard or a file, and the charts as a picture. */

import * as React from 'react';

import { copy } from '../../clipboard';
import * as formats from '../../formats';
import type { JobEntry } from '../../schema';
import type { SeriesStore } from '../../series/store';
import { type MenuItem, openMenu } from '../../sidebar/menu';
import { trans } from '../../trans';
import { csv } from './csv';
import { download } from './download';
import { picture, pngOf } from './picture';
import { fileName } from './tables';

/** What was done stands beside the button for so long. */
const SAID_MS = 8000;

export function ExportMenu(props: {
  job: JobEntry;
  store: SeriesStore;
}): JSX.Element {
  const { job, store } = props;
  const [said, say] = React.useState('');
  React.useEffect(() => {
    const later = window.setTimeout(() => say(''), SAID_MS);
    return () => window.clearTimeout(later);
  }, [said]);
  const write = async (
    put: (text: string) => Promise<void>,
    done: (rows: string) => string
  ) => {
    const { text, rows } = csv(store);
    await put(text);
    say(done(formats.count(rows)));
  };
  const charts = (from: Element) =>
    from.closest('.mnt-live')?.querySelector<HTMLElement>('.mnt-charts');
  const save = async (text: string) =>
    download(new Blob([text], { type: 'text/csv' }), fileName(job, '.csv'));
  const draw = async (shown: HTMLElement) => {
    const canvas = picture(shown, `${job.name}, ${job.job_id}`);
    download(await pngOf(canvas), fileName(job, '.png'));
    say(trans.__('Picture downloaded'));
  };
  const open = (from: HTMLElement) => {
    const shown = charts(from);
    const items: MenuItem[] = [
      [
        trans.__('Copy everything as CSV'),
        () => write(copy, rows => trans.__('%1 rows copied', rows))
      ],
      [
        trans.__('Download everything as CSV'),
        () => write(save, rows => trans.__('%1 rows downloaded', rows))
      ]
    ];
    if (shown) {
      items.push([trans.__('Download the charts as PNG'), () => draw(shown)]);
    }
    openMenu(items, from);
  };
  return (
    <>
      <span className="m s" role="status">
        {said}
      </span>
      <button
        className="btn"
        aria-haspopup="menu"
        onClick={event => open(event.currentTarget)}
      >
        {trans.__('Export')} ▾
      </button>
    </>
  );
}
