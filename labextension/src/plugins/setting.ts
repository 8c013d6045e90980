/** A setting of a plugin: its current value, and a callback for changes. */

import type { ISettingRegistry } from '@jupyterlab/settingregistry';

export function setting<Value>(
  settings: ISettingRegistry | null,
  plugin: string,
  name: string,
  initial: Value,
  changed?: (value: Value) => void
): () => Value {
  let value = initial;
  void settings
    ?.load(plugin)
    .then(loaded => {
      const read = () => {
        value = loaded.get(name).composite as Value;
        changed?.(value);
      };
      loaded.changed.connect(read);
      read();
    })
    .catch(error => console.warn(`${plugin}: no settings`, error));
  return () => value;
}
