/** Preview of a file: the beginning of a text, or a picture. */

import * as React from 'react';

import { Alert } from '../alert';
import { useAsked } from '../asking';
import * as formats from '../formats';
import type { IClusterModel } from '../tokens';
import type { IFile } from './tree';
import { trans } from '../trans';

/** How much of a text is shown. */
const TEXT_BYTES = 256 * 1024;
const PICTURE_BYTES = 16 * 1024 * 1024;
/** A node reads the whole file before it sends any of it. */
const READ_BYTES = 1024 * 1024 * 1024;

const PICTURES: Record<string, string | undefined> = {
  png: 'image/png',
  jpg: 'image/jpeg',
  jpeg: 'image/jpeg',
  gif: 'image/gif',
  webp: 'image/webp',
  svg: 'image/svg+xml'
};

export interface IShown {
  text?: string;
  /** A data URL, so that nothing in a picture can run. */
  picture?: string;
}

export function Preview(props: {
  model: IClusterModel;
  jobId: string;
  file: IFile;
}): JSX.Element {
  const { model, jobId, file } = props;
  const { answer, problem, isAsking } = useAsked(
    () => read(model, jobId, file),
    [model, jobId, file.path, file.node, file.size]
  );
  return (
    <section
      className="mnt-files-preview"
      aria-label={trans.__('Preview of %1', file.path)}
    >
      <p className="s">
        <span className="b">{file.path}</span>{' '}
        <span className="m">
          {formats.fileSize(file.size)}, {file.node}
        </span>
      </p>
      {problem && <Alert problem={problem} />}
      {isAsking ? (
        <p className="m s" role="status">
          {trans.__('Reading…')}
        </p>
      ) : (
        answer && <Shown file={file} shown={answer} />
      )}
    </section>
  );
}

function Shown({ file, shown }: { file: IFile; shown: IShown }): JSX.Element {
  if (shown.picture !== undefined) {
    return <img src={shown.picture} alt={file.path} />;
  }
  if (shown.text === undefined) {
    return (
      <p className="m s">
        {trans.__('No preview: it is neither a text nor a small picture.')}
      </p>
    );
  }
  return (
    <>
      <pre tabIndex={0} aria-label={trans.__('Text of %1', file.path)}>
        {shown.text || trans.__('The file is empty.')}
      </pre>
      {file.size > TEXT_BYTES && (
        <p className="m s">
          {trans.__(
            'Only the first %1 are shown.',
            formats.fileSize(TEXT_BYTES)
          )}
        </p>
      )}
    </>
  );
}

async function read(
  model: IClusterModel,
  jobId: string,
  { path, node, size }: IFile
): Promise<IShown> {
  const type = PICTURES[path.slice(path.lastIndexOf('.') + 1).toLowerCase()];
  if (size > (type ? PICTURE_BYTES : READ_BYTES)) {
    return {};
  }
  const most = type ? undefined : TEXT_BYTES;
  const content = await model.api.file(jobId, { path, node, most });
  if (type) {
    return { picture: await dataUrl(new Blob([content], { type })) };
  }
  return { text: textOf(new Uint8Array(content)) };
}

/** The text, if it is valid; a character that is cut at the end is ignored. */
export function textOf(content: Uint8Array): string | undefined {
  if (content.includes(0)) {
    return undefined;
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(content, {
      stream: true
    });
  } catch {
    return undefined;
  }
}

function dataUrl(blob: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}
