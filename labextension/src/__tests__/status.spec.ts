import { statusLine } from '../plugins/status';
import { context } from './context';
import { node } from './samples';

it('the status bar counts nodes and jobs', () => {
  const { props } = context({
    nodes: [node('wopr'), node('muthur', { liveness: 'lost' })]
  });
  expect(statusLine(props.model)).toBe('1 of 2 nodes · 1 job 40\u202f%');
});
