import { MOST_ROWS, Table } from '../series/table';

describe('a table of rows', () => {
  it('stays bounded for ever, and spans all of the time evenly', () => {
    const table = new Table(['time_s', 'value']);
    const rows = 50_000;
    for (let i = 1; i <= rows; i++) {
      table.append({ time_s: [i], value: [i] });
      expect(table.length).toBeLessThanOrEqual(MOST_ROWS);
    }
    const times = table.column('time_s');
    expect(times[times.length - 1]).toBe(rows);
    const gaps = [...times.subarray(1)].map((time, i) => time - times[i]);
    expect(new Set(gaps.slice(0, -1)).size).toBe(1);
    expect(table.column('value')[0]).toBeCloseTo((1 + times[0]) / 2, 6);
  });
});
