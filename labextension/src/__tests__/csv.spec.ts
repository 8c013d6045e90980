import { csv } from '../liveview/tables/csv';
import { stored } from './samples';

it('a row per rank and step is copied', () => {
  const lines = csv(stored()).trim().split('\n');
  expect(lines).toHaveLength(9);
  expect(lines[1]).toContain('0,"wopr",1001,1');
});
