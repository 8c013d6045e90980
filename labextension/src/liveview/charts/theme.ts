/** Chart theme: the page's colors, read for the canvas. */

export type ITheme = ReturnType<typeof readTheme>;

export const DASHES: number[][] = [[], [9, 4], [9, 3, 2, 3], [3, 3]];

export function readTheme(node: Element) {
  const style = getComputedStyle(node);
  const read = (name: string) => style.getPropertyValue(name).trim();
  return {
    ranks: [0, 1, 2, 3].map(rank => read(`--mnt-rank-${rank}`)),
    job: read('--mnt-job'),
    fill: read('--mnt-fill'),
    other: read('--mnt-other'),
    grid: read('--mnt-grid'),
    axis: read('--mnt-axis'),
    text: read('--jp-ui-font-color1'),
    secondary: read('--jp-ui-font-color2'),
    band: read('--mnt-band'),
    bad: read('--mnt-bad'),
    font: style.fontFamily || 'sans-serif'
  };
}

/** Diagonal lines for other traffic, recognizable without color. */
export function hatch(color: string): CanvasPattern | string {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 6;
  const context = tile.getContext('2d');
  if (!context) {
    return 'transparent';
  }
  context.strokeStyle = color;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(0, 6);
  context.lineTo(6, 0);
  context.stroke();
  return context.createPattern(tile, 'repeat') ?? 'transparent';
}
