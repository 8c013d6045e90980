/** Whether a file can be opened in the submit panel. Pure. */

import { RECIPE_SECTIONS } from './schema';

/** A table, or a table in a table: its outermost name. */
const HEAD = /^\s*\[\[?\s*([\w-]+)[\w\s.-]*\]\]?\s*(?:#.*)?$/;

const KEY = /^\s*([\w-]+)[\w\s.-]*=/;

/** Texts of several lines may hold lines that look like tables. */
const LONG_TEXT = /"""[\s\S]*?"""|'''[\s\S]*?'''/g;

/** Whether a .toml file has only sections of a recipe; the panel reports errors in them. */
export function isRecipe(text: string): boolean {
  const names: string[] = [];
  let isBelowHead = false;
  for (const line of text.replace(LONG_TEXT, '""').split('\n')) {
    const head = HEAD.exec(line);
    const key = isBelowHead ? null : KEY.exec(line);
    isBelowHead ||= head !== null;
    const name = (head ?? key)?.[1];
    if (name !== undefined) {
      names.push(name);
    }
  }
  return (
    names.length > 0 && names.every(name => RECIPE_SECTIONS.includes(name))
  );
}

export const isScript = (name: string) => name.endsWith('.py');

export const mayBeRecipe = (name: string) => name.endsWith('.toml');
