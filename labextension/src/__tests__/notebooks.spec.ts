import { packageOf } from '../plugins/notebooks';

/** A notebook whose kernel answers an expression so. */
function panel(said: object, language = 'python', status = 'idle') {
  const kernel = {
    status,
    info: Promise.resolve({ language_info: { name: language } }),
    requestExecute: () => ({
      done: Promise.resolve({
        content: { status: 'ok', user_expressions: { expression: said } }
      })
    })
  };
  return { sessionContext: { session: { kernel } } } as never;
}

const VERSION = { data: { 'text/plain': "'0.1.0'" } };
const LACKS = { ename: 'PackageNotFoundError' };

describe('what a kernel has of the package', () => {
  it.each([
    [panel(VERSION), { version: '0.1.0' }],
    [panel(LACKS), { version: '' }],
    [panel({ ename: 'KeyError' }), null],
    [panel(LACKS, 'R'), null],
    [panel(LACKS, 'python', 'busy'), null]
  ])('%#', async (asked, expected) => {
    expect(await packageOf(asked)).toEqual(expected);
  });
});
