/** Order of rows by a column. Pure. */

export type SortValue = number | string | null | undefined;

/** Sorted; equal rows keep their order, unknown values come last either way. */
export function inOrder<Row>(
  rows: ReadonlyArray<Row>,
  value: (row: Row) => SortValue,
  isDown: boolean
): Row[] {
  const isKnown = (one: SortValue) =>
    one !== null && one !== undefined && !Number.isNaN(one);
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (!isKnown(x) || !isKnown(y)) {
      return Number(isKnown(y)) - Number(isKnown(x));
    }
    const order =
      typeof x === 'number' && typeof y === 'number'
        ? x - y
        : String(x).localeCompare(String(y), undefined, { numeric: true });
    return isDown ? -order : order;
  });
}
