import { JOB_COLUMNS, RANK_COLUMNS } from '../series/store';
import { csv } from '../liveview/tables/csv';
import { stored, summary } from './samples';

describe('what is copied as CSV', () => {
  const lines = csv(stored()).trim().split('\n');

  it('has the recent figures, and a row per step of the job and of each rank', () => {
    expect(lines).toHaveLength(1 + 3 + 4 + 8);
    expect(lines[1]).toMatch(/^recent,job,,,4,,93,/);
    expect(lines[2]).toMatch(/^recent,0,"wopr",,4,,100,200,/);
    expect(lines[8]).toContain('step,0,"wopr",1001,1');
  });

  it('has every column of the job and of its ranks', () => {
    const names = lines[0].split(',');
    expect(names).toEqual(
      expect.arrayContaining([...JOB_COLUMNS, ...RANK_COLUMNS])
    );
    expect(new Set(names).size).toBe(names.length);
    const store = stored({ summary: summary(undefined, { bubble: 0.37 }) });
    const [head, job] = csv(store).split('\n');
    expect(job.split(',')[head.split(',').indexOf('bubble')]).toBe('0.37');
  });

  it('has no formula, and quotes as spreadsheets read them', () => {
    const store = stored();
    store.sorted[0].who.node = '=cmd("x")';
    expect(csv(store)).toContain(`recent,0,"'=cmd(""x"")",`);
  });

  it('says NaN where the loss is that', () => {
    const job = { time_s: [1001], step: [1], loss: ['NaN'] } as any;
    const written = csv(stored({ job })).split('\n');
    expect(written.find(line => line.startsWith('step,job'))).toMatch(/,NaN$/);
  });
});
