/** Picture of all charts as they are shown: their canvases, with titles, labels and events. */

/** Height of the line that names the job, in CSS pixels. */
const HEAD = 24;

/** A canvas with everything in `charts`; `title` stands above it. */
export function picture(charts: HTMLElement, title: string): HTMLCanvasElement {
  const frame = charts.getBoundingClientRect();
  const canvas = document.createElement('canvas');
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.ceil(frame.width * ratio);
  canvas.height = Math.ceil((frame.height + HEAD) * ratio);
  const context = canvas.getContext('2d')!;
  context.scale(ratio, ratio);
  context.fillStyle = background(charts);
  context.fillRect(0, 0, frame.width, frame.height + HEAD);
  const style = getComputedStyle(charts);
  context.fillStyle = style.color;
  context.font = `600 13px ${style.fontFamily}`;
  context.fillText(title, 4, 16);
  context.translate(0, HEAD);
  for (const node of charts.querySelectorAll<Element>(
    'canvas, .mnt-chart-title > span, .mnt-chart-note, .mnt-flag, svg'
  )) {
    const box = node.getBoundingClientRect();
    context.save();
    context.translate(box.left - frame.left, box.top - frame.top);
    if (node instanceof HTMLCanvasElement) {
      context.drawImage(node, 0, 0, box.width, box.height);
    } else if (node instanceof SVGSVGElement) {
      paintSvg(context, node);
    } else {
      paintText(context, node, box);
    }
    context.restore();
  }
  return canvas;
}

/** The first background that is not transparent, from `node` up. */
function background(node: Element | null): string {
  for (let at = node; at; at = at.parentElement) {
    const color = getComputedStyle(at).backgroundColor;
    if (color && !/^(transparent|rgba\(.*, 0\))$/.test(color)) {
      return color;
    }
  }
  return 'white';
}

function paintText(
  context: CanvasRenderingContext2D,
  node: Element,
  box: DOMRect
): void {
  const style = getComputedStyle(node);
  if (node.classList.contains('mnt-flag')) {
    context.fillStyle = style.backgroundColor;
    context.fillRect(0, 0, box.width, box.height);
  }
  const padding = [style.paddingLeft, style.paddingTop].map(parseFloat);
  context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  context.fillStyle = style.color;
  context.textBaseline = 'middle';
  const middle = (box.height + (padding[1] || 0)) / 2;
  context.fillText((node.textContent ?? '').trim(), padding[0] || 0, middle);
}

function paintSvg(context: CanvasRenderingContext2D, svg: SVGSVGElement): void {
  for (const shape of svg.querySelectorAll<SVGGraphicsElement>(
    'path, rect, circle, text'
  )) {
    const style = getComputedStyle(shape);
    context.save();
    const moved = shape.transform.baseVal.consolidate()?.matrix;
    if (moved) {
      context.translate(moved.e, moved.f);
    }
    context.globalAlpha = parseFloat(style.opacity) || 1;
    if (shape instanceof SVGTextElement) {
      paintWords(context, shape);
    } else {
      paintShape(context, outlineOf(shape), style);
    }
    context.restore();
  }
}

function outlineOf(shape: SVGGraphicsElement): Path2D {
  const outline = new Path2D(shape.getAttribute('d') ?? '');
  const number = (name: string) => Number(shape.getAttribute(name) ?? 0);
  if (shape instanceof SVGRectElement) {
    outline.rect(number('x'), number('y'), number('width'), number('height'));
  } else if (shape instanceof SVGCircleElement) {
    outline.arc(number('cx'), number('cy'), number('r'), 0, 2 * Math.PI);
  }
  return outline;
}

function paintShape(
  context: CanvasRenderingContext2D,
  outline: Path2D,
  style: CSSStyleDeclaration
): void {
  if (style.fill !== 'none') {
    context.fillStyle = style.fill;
    context.fill(outline);
  }
  if (style.stroke !== 'none') {
    context.strokeStyle = style.stroke;
    context.lineWidth = parseFloat(style.strokeWidth) || 1;
    const dash = style.strokeDasharray;
    context.setLineDash(dash === 'none' ? [] : dash.split(',').map(parseFloat));
    context.stroke(outline);
  }
}

/** A text and its spans, one after the other. */
function paintWords(
  context: CanvasRenderingContext2D,
  text: SVGTextElement
): void {
  let x = Number(text.getAttribute('x') ?? 0);
  const y = Number(text.getAttribute('y') ?? 0);
  context.textBaseline = 'alphabetic';
  for (const node of text.childNodes) {
    const element = node instanceof Element ? node : text;
    const style = getComputedStyle(element);
    context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    context.fillStyle = style.fill;
    context.fillText(node.textContent ?? '', x, y);
    x += context.measureText(node.textContent ?? '').width;
  }
}

/** The canvas as a PNG file. */
export function pngOf(canvas: HTMLCanvasElement): Promise<Blob> {
  return new Promise((resolve, reject) =>
    canvas.toBlob(
      blob => (blob ? resolve(blob) : reject(new Error('no picture'))),
      'image/png'
    )
  );
}
