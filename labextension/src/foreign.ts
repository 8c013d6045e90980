/**
 * Foreign text: makes what others wrote safe to show. The server and the kernel have done that for
 * all that they send; a notebook may come from anywhere.
 */

/** As in model/text/foreign.py: control, bidirectional, format and invisible characters. */
const UNSAFE =
  // eslint-disable-next-line no-control-regex, no-misleading-character-class
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffc\ufffe\uffff\u{13430}-\u{1345f}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}\p{Surrogate}]/gu;

const MOST_CHARACTERS = 10_000;

/** The text with escapes for what is not shown as itself, like `\u202e`; very long text is cut. */
export function visible(text: string): string {
  const seen = text.replace(UNSAFE, escape);
  return seen.length > MOST_CHARACTERS
    ? `${seen.slice(0, MOST_CHARACTERS)}…`
    : seen;
}

/** The data with every text in it {@link visible}. */
export function safe<T>(data: T): T {
  if (typeof data === 'string') {
    return visible(data) as T;
  }
  if (Array.isArray(data)) {
    return data.map(safe) as T;
  }
  if (typeof data === 'object' && data !== null) {
    const entries = Object.entries(data);
    return Object.fromEntries(
      entries.map(([name, value]) => [name, safe(value)])
    ) as T;
  }
  return data;
}

function escape(char: string): string {
  const code = char.codePointAt(0)!.toString(16);
  return code.length > 2
    ? code.length > 4
      ? `\\U${code.padStart(8, '0')}`
      : `\\u${code.padStart(4, '0')}`
    : `\\x${code.padStart(2, '0')}`;
}
