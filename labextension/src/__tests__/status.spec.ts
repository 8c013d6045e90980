import { nullTranslator } from '@jupyterlab/translation';

import { statusLine } from '../plugins/status';
import { context } from './context';
import { node } from './samples';

const trans = nullTranslator.load('jupyter_mntrain');

it('the status bar counts nodes and jobs', () => {
  const { props } = context({
    nodes: [node('wopr'), node('muthur', { liveness: 'lost' })]
  });
  expect(statusLine(props.model, trans)).toBe('1 of 2 nodes · 1 job 40\u202f%');
});
