/** Tree of files: the paths that a job wrote on its nodes, as folders. */

import type { WrittenFiles } from '../schema';

export interface IFile {
  name: string;
  path: string;
  size: number;
  node: string;
}

/**
 * A folder with the number and size of all files in it, at any depth. Those of one name on several
 * nodes count once, as in `mntrain status`; their sizes add up.
 */
export interface IFolder {
  name: string;
  path: string;
  folders: ReadonlyArray<IFolder>;
  files: ReadonlyArray<IFile>;
  count: number;
  size: number;
}

const order = new Intl.Collator(undefined, { numeric: true });
const byName = (one: { name: string }, other: { name: string }) =>
  order.compare(one.name, other.name);

/** Files of one name on several nodes stand one below the other. */
export function treeOf(written: WrittenFiles): IFolder {
  const files = Object.entries(written.nodes).flatMap(([node, held]) =>
    (held.files ?? []).map(({ path, size_bytes: size }) => ({
      name: path.slice(path.lastIndexOf('/') + 1),
      path,
      size,
      node
    }))
  );
  return folderOf('', files);
}

function folderOf(path: string, all: ReadonlyArray<IFile>): IFolder {
  const begin = path ? path.length + 1 : 0;
  const files: IFile[] = [];
  const below = new Map<string, IFile[]>();
  let size = 0;
  for (const file of all) {
    size += file.size;
    const end = file.path.indexOf('/', begin);
    if (end < 0) {
      files.push(file);
      continue;
    }
    const folder = file.path.slice(0, end);
    const there = below.get(folder);
    if (there) {
      there.push(file);
    } else {
      below.set(folder, [file]);
    }
  }
  return {
    name: path.slice(path.lastIndexOf('/') + 1),
    path,
    folders: [...below].map(([at, some]) => folderOf(at, some)).sort(byName),
    files: files.sort(byName),
    count: new Set(all.map(file => file.path)).size,
    size
  };
}
