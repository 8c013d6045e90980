import { cellForJob, cellForNodes } from '../cells';
import { job, node } from './samples';

it('a name that is no plain word is never written into a cell', () => {
  const evil = node('x; rm -rf /');
  expect(cellForNodes([evil, node('wopr')])).not.toContain('rm');
  expect(cellForJob(job())).toContain('%mntrain attach j-0000abcd');
});
