/** Page state of a view: width, theme and visibility. */

import * as React from 'react';

import { type ITheme, readTheme } from './charts/theme';

/** JupyterLab loads a theme's colors a moment after marking it on the body. */
const THEME_MS = 100;

export interface IPage {
  theme: ITheme | null;
  /** Pixels between the view's paddings. */
  width: number;
}

/** Draws only while it is seen. */
interface IVisible {
  visible: boolean;
}

export function usePage(
  root: React.RefObject<HTMLElement>,
  controller: IVisible
): IPage {
  const [theme, setTheme] = React.useState<ITheme | null>(null);
  const [width, setWidth] = React.useState(0);
  React.useLayoutEffect(() => {
    const node = root.current!;
    const read = () => {
      const now = readTheme(node);
      setTheme(old =>
        old && JSON.stringify(old) === JSON.stringify(now) ? old : now
      );
    };
    const measure = () => setWidth(innerWidth(node));
    read();
    measure();
    const sizes = new ResizeObserver(measure);
    sizes.observe(node);
    let later = 0;
    const themes = new MutationObserver(() => {
      window.clearTimeout(later);
      later = window.setTimeout(read, THEME_MS);
    });
    themes.observe(document.body, {
      attributes: true,
      attributeFilter: ['data-jp-theme-name', 'data-jp-theme-light', 'class']
    });
    const seen = new IntersectionObserver(entries => {
      controller.visible = entries[entries.length - 1].isIntersecting;
    });
    seen.observe(node);
    return () => {
      window.clearTimeout(later);
      sizes.disconnect();
      themes.disconnect();
      seen.disconnect();
    };
  }, [controller]);
  return { theme, width };
}

/** Width without paddings. */
function innerWidth(node: HTMLElement): number {
  const style = getComputedStyle(node);
  const padding =
    (parseFloat(style.paddingLeft) || 0) +
    (parseFloat(style.paddingRight) || 0);
  return Math.max(0, Math.floor(node.clientWidth - padding));
}
