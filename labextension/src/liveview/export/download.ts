/** Downloads through the browser. */

/** Long enough for the browser to have taken the file. */
const TAKEN_MS = 10_000;

export function download(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  window.setTimeout(() => URL.revokeObjectURL(link.href), TAKEN_MS);
}
