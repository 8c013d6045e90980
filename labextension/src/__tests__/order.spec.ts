import { inOrder } from '../liveview/tables/order';

const sorted = (values: any[], isDown = false) =>
  inOrder(values, one => one, isDown);

describe('rows sorted by a column', () => {
  it('are in the order of numbers, and of numbers in names', () => {
    expect(sorted([10, 9, -1])).toEqual([-1, 9, 10]);
    expect(sorted(['n10', 'n9', 'n1'])).toEqual(['n1', 'n9', 'n10']);
    expect(sorted([1, 3, 2], true)).toEqual([3, 2, 1]);
  });

  it('have unknown values last, either way', () => {
    expect(sorted([null, 2, NaN, 1])).toEqual([1, 2, null, NaN]);
    expect(sorted([null, 1, undefined, 2], true).slice(0, 2)).toEqual([2, 1]);
  });

  it('keep their order where they are equal', () => {
    const rows = [
      { id: 'a', at: 1 },
      { id: 'b', at: 0 },
      { id: 'c', at: 1 }
    ];
    const ids = (isDown: boolean) =>
      inOrder(rows, row => row.at, isDown).map(row => row.id);
    expect(ids(false)).toEqual(['b', 'a', 'c']);
    expect(ids(true)).toEqual(['a', 'c', 'b']);
  });
});
