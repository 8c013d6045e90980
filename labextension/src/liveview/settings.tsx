/** Settings: a fold with every setting of a job, and where it came from. */

import * as React from 'react';

import { Alert } from '../alert';
import type { IProblem } from '../problem';
import type { ShownSetting } from '../schema';
import { problemOf } from '../tokens';
import { trans } from '../trans';
import { Table } from './tables/table';

/** Settings that nobody chose. */
const UNTOUCHED: ReadonlyArray<ShownSetting['origin']> = ['default', 'auto'];

/** Reads them when it is opened first. */
export function SettingsFold(props: {
  read: () => Promise<ReadonlyArray<ShownSetting>>;
}): JSX.Element {
  const [settings, setSettings] =
    React.useState<ReadonlyArray<ShownSetting> | null>(null);
  const [problem, setProblem] = React.useState<IProblem | null>(null);
  const isAsking = React.useRef(false);
  const open = (isOpen: boolean) => {
    if (isOpen && !settings && !isAsking.current) {
      isAsking.current = true;
      props
        .read()
        .then(found => {
          setSettings(found);
          setProblem(null);
        })
        .catch(error => setProblem(problemOf(error)))
        .finally(() => {
          isAsking.current = false;
        });
    }
  };
  return (
    <details
      className="mnt-settings-fold"
      onToggle={event => open(event.currentTarget.open)}
    >
      <summary>{trans.__('Settings')}</summary>
      {problem && <Alert problem={problem} />}
      {settings && <SettingsTable settings={settings} />}
    </details>
  );
}

function SettingsTable(props: {
  settings: ReadonlyArray<ShownSetting>;
}): JSX.Element {
  const [isAll, showAll] = React.useState(false);
  const shown = props.settings.filter(
    one => isAll || !UNTOUCHED.includes(one.origin)
  );
  return (
    <>
      <label className="s">
        <input
          type="checkbox"
          checked={isAll}
          onChange={event => showAll(event.currentTarget.checked)}
        />
        {trans.__('also defaults')}
      </label>
      <div className="mnt-tables">
        <Table
          caption={trans.__('Settings')}
          columns={[
            { name: trans.__('setting') },
            { name: trans.__('value') },
            { name: trans.__('from') }
          ]}
          rows={shown.map(one => ({
            key: one.name,
            cells: [one.name, one.value, originWords(one.origin)].map(text => ({
              shown: text,
              value: text
            }))
          }))}
        />
      </div>
    </>
  );
}

export function originWords(origin: ShownSetting['origin']): string {
  const words: Partial<Record<ShownSetting['origin'], string>> = {
    default: trans.__('default'),
    recipe: trans.__('recipe'),
    panel: trans.__('panel'),
    option: trans.__('option'),
    auto: trans.__('auto')
  };
  return words[origin] ?? origin;
}
