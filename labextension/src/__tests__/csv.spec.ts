import { JOB_COLUMNS, RANK_COLUMNS, type SeriesStore } from '../series/store';
import { csv as written } from '../liveview/export/csv';
import { linkSummary, stored, summary } from './samples';

const csv = (store: SeriesStore) => written(store).text;

describe('what is copied as CSV', () => {
  const lines = csv(stored()).trim().split('\n');

  it('has the recent figures, and a row per step of the job and of each rank', () => {
    expect(lines).toHaveLength(1 + 3 + 4 + 8);
    expect(lines[1]).toMatch(/^recent,job,,,,,4,,93,/);
    expect(lines[2]).toMatch(/^recent,0,"wopr",,,,4,,100,200,/);
    expect(lines[8]).toContain('step,0,"wopr",,,1001,1');
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
    const told = csv(stored({ job })).split('\n');
    expect(told.find(line => line.startsWith('step,job'))).toMatch(/,NaN,/);
  });

  it('has evaluations, links and events, and says how many rows it has', () => {
    const nodes = ['wopr', 'muthur'];
    const store = stored({
      evaluation: { time_s: [1002], step: [2], loss: [3.5] },
      links: nodes.map(node => ({ node, time_s: [1001], sent: [7] })),
      summary: summary(undefined, {
        events: [{ kind: 'saved', time_s: 1003, step: 3 }],
        links: nodes.flatMap(node => [
          linkSummary(node, 'sent', { utilization: 0.25 }),
          linkSummary(node, 'received')
        ])
      })
    });
    const { text, rows } = written(store);
    const [names, ...told] = text
      .trim()
      .split('\n')
      .map(line => line.split(','));
    expect(told).toHaveLength(rows);
    const value = (kind: string, name: string) =>
      told.filter(row => row[0] === kind).map(row => row[names.indexOf(name)]);
    expect(value('evaluation', 'evaluation_loss')).toEqual(['3.5']);
    expect(value('link', 'sent')).toEqual(['7', '7']);
    expect(value('event', 'event')).toEqual(['saved']);
    expect(value('recent', 'sent_share').filter(Boolean)).toEqual([
      '0.25',
      '0.25'
    ]);
    told.forEach(row => expect(row).toHaveLength(names.length));
  });
});
