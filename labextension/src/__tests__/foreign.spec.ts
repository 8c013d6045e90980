import { checkBundle } from '../liveview/bundle';
import { safe, visible } from '../foreign';
import { bundle, job } from './samples';

describe('text of others', () => {
  it.each([
    ['a\u001b[2J\u0007', 'a\\x1b[2J\\x07'],
    ['\u009b2J\u0000', '\\x9b2J\\x00'],
    ['user\u202egpj', 'user\\u202egpj'],
    ['\u2066\u200f\u061c\u2028', '\\u2066\\u200f\\u061c\\u2028'],
    ['\u{e0041}', '\\U000e0041'],
    ['\ud800', '\\ud800'],
    ['naïve 你好 🧠 שלום\n\t', 'naïve 你好 🧠 שלום\n\t']
  ])('%j is shown as %j', (text, seen) => {
    expect(visible(text)).toBe(seen);
  });

  it('is cut if it is very long', () => {
    expect(visible('x'.repeat(100_000)).length).toBeLessThan(11_000);
  });

  it('is found in data however deep', () => {
    const data = { a: ['\u202e', { b: '\u0007' }, 1, null], c: true };
    expect(safe(data)).toEqual({
      a: ['\\u202e', { b: '\\x07' }, 1, null],
      c: true
    });
  });

  it('is safe in a notebook that somebody else has saved', () => {
    const evil = bundle({ job: job({ name: 'evil\u202e\u001b[2J' }) });
    expect(checkBundle(evil).bundle?.job.name).toBe('evil\\u202e\\x1b[2J');
  });
});
