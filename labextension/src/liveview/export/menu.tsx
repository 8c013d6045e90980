/** Export menu: CSV to the clipboard or a file, and the charts as a picture. */

import * as React from 'react';

import { copy } from '../../clipboard';
import * as formats from '../../formats';
import { type MenuItem, openMenu } from '../../sidebar/menu';
import { trans } from '../../trans';
import type { ICsv } from './csv';
import { download } from './download';
import { picture, pngOf } from './picture';

/** How long the result is shown next to the button. */
const SAID_MS = 8000;

export interface IExportProps {
  csv: () => ICsv;
  /** Name of a file with this suffix. */
  file: (end: string) => string;
  /** Above the picture. */
  title: string;
}

export function ExportMenu(props: IExportProps): JSX.Element {
  const { csv, file, title } = props;
  const [said, say] = React.useState('');
  React.useEffect(() => {
    const later = window.setTimeout(() => say(''), SAID_MS);
    return () => window.clearTimeout(later);
  }, [said]);
  const write = async (
    put: (text: string) => Promise<void>,
    done: (rows: string) => string
  ) => {
    const { text, rows } = csv();
    await put(text);
    say(done(formats.count(rows)));
  };
  const charts = (from: Element) =>
    from
      .closest('.mnt-live, .mnt-compare')
      ?.querySelector<HTMLElement>('.mnt-charts');
  const save = async (text: string) =>
    download(new Blob([text], { type: 'text/csv' }), file('.csv'));
  const draw = async (shown: HTMLElement) => {
    const canvas = picture(shown, title);
    download(await pngOf(canvas), file('.png'));
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
