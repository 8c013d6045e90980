/** Moves overlapping labels apart, in order, inside the chart. */

export function spread(
  wanted: ReadonlyArray<number>,
  gap: number,
  top: number,
  bottom: number
): number[] {
  const order = wanted.map((_, i) => i).sort((a, b) => wanted[a] - wanted[b]);
  const least = Math.min(gap, (bottom - top) / Math.max(1, wanted.length - 1));
  const placed = new Array<number>(wanted.length);
  let floor = top;
  for (const i of order) {
    placed[i] = Math.max(floor, Math.min(wanted[i], bottom));
    floor = placed[i] + least;
  }
  let ceiling = bottom;
  for (const i of [...order].reverse()) {
    placed[i] = Math.min(placed[i], ceiling);
    ceiling = placed[i] - least;
  }
  return placed;
}
