/** Files of a job: what it wrote on its nodes, with a preview and downloads. */

import { ReactWidget } from '@jupyterlab/apputils';
import * as React from 'react';

import { Alert } from '../alert';
import { useAsked } from '../asking';
import { copy } from '../clipboard';
import { Button } from '../controls';
import * as formats from '../formats';
import { downloadFrom } from '../liveview/export/download';
import type { WrittenFiles } from '../schema';
import type { IClusterModel } from '../tokens';
import { Preview } from './preview';
import { type IFile, type IFolder, treeOf } from './tree';
import { trans } from '../trans';

export interface IFilesProps {
  model: IClusterModel;
  jobId: string;
}

/** Folders with more than this stay closed at first. */
const FEW = 20;

export function filesWidget(props: IFilesProps): ReactWidget {
  const widget = ReactWidget.create(<FilesView {...props} />);
  widget.addClass('mnt-files-widget');
  return widget;
}

export function FilesView({ model, jobId }: IFilesProps): JSX.Element {
  const job = model.job(jobId);
  const asking = useAsked(
    () => model.api.files(jobId),
    [model, jobId, job?.state]
  );
  const { answer, takenAt, problem, isAsking, again } = asking;
  const [chosen, choose] = React.useState<IFile | null>(null);
  const tree = React.useMemo(() => answer && treeOf(answer), [answer]);
  return (
    <div className="mnt mnt-files">
      <div className="mnt-controls">
        <span className="b">{job?.name ?? jobId}</span>
        <span className="m s" aria-live="polite">
          {isAsking
            ? trans.__('Asking the nodes…')
            : tree && total(answer!, tree, takenAt)}
        </span>
        <span className="sp" />
        <Button
          label={trans.__('Copy pull command')}
          title={trans.__('Fetches all files from all nodes into one folder')}
          run={() => copy(`mntrain pull ${jobId}`)}
        />
        <Button label={trans.__('Look again')} isOff={isAsking} run={again} />
      </div>
      {problem && <Alert problem={problem} />}
      {answer && <Notes written={answer} />}
      {tree && (
        <div className="mnt-files-panes">
          <div className="mnt-files-list">
            {tree.count === 0 ? (
              <p className="m">{nothing(answer!)}</p>
            ) : (
              <Entries
                folder={tree}
                hasNodes={Object.keys(answer!.nodes).length > 1}
                chosen={chosen}
                choose={choose}
                download={file =>
                  downloadFrom(model.api.fileUrl(jobId, file), file.name)
                }
              />
            )}
          </div>
          {chosen && <Preview {...{ model, jobId }} file={chosen} />}
        </div>
      )}
    </div>
  );
}

function total(
  written: WrittenFiles,
  tree: IFolder,
  takenAt: number | null
): string {
  const held = Object.values(written.nodes);
  const isWhole = held.every(one => one.count === (one.files ?? []).length);
  const count = isWhole
    ? tree.count
    : held.reduce((sum, one) => sum + (one.count ?? 0), 0);
  const size = held.reduce((sum, one) => sum + (one.size_bytes ?? 0), 0);
  return trans._n(
    '%2 file, %3; as of %4',
    '%2 files, %3; as of %4',
    count,
    formats.count(count),
    formats.fileSize(size),
    formats.clock(takenAt, true)
  );
}

function nothing(written: WrittenFiles): string {
  return Object.keys(written.nodes).length
    ? trans.__(
        'It wrote nothing in the folder that it runs in. {out} in an argument is replaced by a folder there.'
      )
    : trans.__('No node says what it wrote.');
}

/** What is not in the list, and why. */
function Notes({ written }: { written: WrittenFiles }): JSX.Element {
  const held = Object.entries(written.nodes);
  const leftOut = held.flatMap(([node, one]) =>
    Object.entries(one.left_out ?? {}).map(([name, why]) => (
      <li key={`${node} ${name}`}>
        {node}: {name}: {why}
      </li>
    ))
  );
  return (
    <>
      {Object.entries(written.silent ?? {}).map(([node, problem]) => (
        <Alert key={node} problem={{ ...problem, node }} />
      ))}
      {held
        .filter(([, one]) => (one.count ?? 0) > (one.files ?? []).length)
        .map(([node, one]) => (
          <p key={node} className="s">
            {trans.__(
              '%1 has %2 files; only %3 of them are listed.',
              node,
              formats.count(one.count),
              formats.count((one.files ?? []).length)
            )}
          </p>
        ))}
      {leftOut.length > 0 && (
        <details className="s">
          <summary>
            {trans._n(
              '%1 entry is left out',
              '%1 entries are left out',
              leftOut.length
            )}
          </summary>
          <ul>{leftOut}</ul>
        </details>
      )}
    </>
  );
}

interface IEntriesProps {
  folder: IFolder;
  hasNodes: boolean;
  chosen: IFile | null;
  choose: (file: IFile) => void;
  download: (file: IFile) => void;
}

function Entries(props: IEntriesProps): JSX.Element {
  const { folder } = props;
  return (
    <ul>
      {folder.folders.map(one => (
        <li key={one.path}>
          <Folder {...props} folder={one} />
        </li>
      ))}
      {folder.files.map(one => (
        <li key={`${one.path} ${one.node}`} className="mnt-files-row">
          <FileRow {...props} file={one} />
        </li>
      ))}
    </ul>
  );
}

/** Its content is drawn once it is opened. */
function Folder(props: IEntriesProps): JSX.Element {
  const { folder } = props;
  const [isOpen, setOpen] = React.useState(folder.count <= FEW);
  return (
    <details
      open={isOpen}
      onToggle={event => setOpen(event.currentTarget.open)}
    >
      <summary>
        {folder.name}/{' '}
        <span className="m s">
          {trans._n(
            '%2 file, %3',
            '%2 files, %3',
            folder.count,
            formats.count(folder.count),
            formats.fileSize(folder.size)
          )}
        </span>
      </summary>
      {isOpen && <Entries {...props} />}
    </details>
  );
}

function FileRow(props: IEntriesProps & { file: IFile }): JSX.Element {
  const { file, hasNodes, chosen, choose, download } = props;
  const { name, path, node, size } = file;
  const isChosen = chosen?.path === path && chosen.node === node;
  return (
    <>
      <button
        className="mnt-textlink"
        aria-pressed={isChosen}
        onClick={() => choose(file)}
      >
        {name}
      </button>
      <span className="sp" />
      {hasNodes && <span className="m s">{node}</span>}
      <span className="s mnt-files-size">{formats.fileSize(size)}</span>
      <Button
        kind="ico"
        icon="download"
        label={
          hasNodes
            ? trans.__('Download %1 of %2', path, node)
            : trans.__('Download %1', path)
        }
        run={() => download(file)}
      />
    </>
  );
}
