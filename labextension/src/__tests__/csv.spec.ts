import { csv } from '../liveview/tables/csv';
import { stored } from './samples';

describe('what is copied as CSV', () => {
  const lines = csv(stored()).trim().split('\n');

  it('has the recent figures, and a row per step of the job and of each rank', () => {
    expect(lines).toHaveLength(1 + 3 + 4 + 8);
    expect(lines[1]).toMatch(/^recent,job,,,4,,93,/);
    expect(lines[2]).toMatch(/^recent,0,"wopr",,4,,100,200,/);
    expect(lines[8]).toContain('step,0,"wopr",1001,1');
  });

  it('says NaN where the loss is that', () => {
    const job = { time_s: [1001], step: [1], loss: ['NaN'] } as any;
    const written = csv(stored({ job })).split('\n');
    expect(written.find(line => line.startsWith('step,job'))).toMatch(/,NaN$/);
  });
});
