import { spread } from '../liveview/charts/spread';

describe('labels', () => {
  it('keep their order, their distance and the chart’s bounds', () => {
    const placed = spread([50, 52, 51, 99, 99], 14, 0, 100);
    const order = [0, 2, 1, 3, 4];
    order.slice(1).forEach((label, i) => {
      expect(placed[label] - placed[order[i]]).toBeGreaterThanOrEqual(13.99);
    });
    expect(Math.max(...placed)).toBeLessThanOrEqual(100);
    expect(Math.min(...placed)).toBeGreaterThanOrEqual(0);
  });

  it('that fit stay where they are', () => {
    expect(spread([10, 60], 14, 0, 100)).toEqual([10, 60]);
  });
});
