/** Downloads through the browser. */

/** Long enough for the browser to have taken the file. */
const TAKEN_MS = 10_000;

export function download(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  downloadFrom(url, name);
  window.setTimeout(() => URL.revokeObjectURL(url), TAKEN_MS);
}

/** Straight from the server to a file, of any length. */
export function downloadFrom(url: string, name: string): void {
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
}
