import { cellForJob, cellForNodes, cellForPanel } from '../cells';
import { job, node } from './samples';

it('a name that is no plain word is never written into a cell', () => {
  const evil = node('x; rm -rf /');
  expect(cellForNodes([evil, node('wopr')])).not.toContain('rm');
  expect(cellForJob(job())).toContain('%mntrain attach j-0000abcd');
});

it('the cell of a node runs as it is: its recipe comes with mntrain', () => {
  expect(cellForNodes([node('wopr')])).toBe(
    '%load_ext jupyter_mntrain\n%mntrain launch quick-check --member wopr:1'
  );
});

it.each([
  ['small.toml', 'small.toml'],
  ['../runs/a-b_1.py', '../runs/a-b_1.py'],
  ['my recipe.toml', '"my recipe.toml"'],
  ["it's.toml", '"it\'s.toml"'],
  ['a"b\\c.toml', '"a\\"b\\\\c.toml"'],
  ['{x}$y.toml', '"{{x}}$""y.toml"'],
  ['-x.toml', './-x.toml'],
  ['~me.toml', '"./~me.toml"']
])('the panel of %s is opened by its path as one word', (path, word) => {
  expect(cellForPanel(path)).toBe(
    `%load_ext jupyter_mntrain\n%mntrain panel ${word}`
  );
});
