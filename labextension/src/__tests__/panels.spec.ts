import { KeptFocus, markBlocked } from '../plugins/panels';

const PANEL =
  '<div class="mnt-panel"><input><button class="mnt-blocked">Launch</button></div>';

const launchIn = (root: Element) => root.querySelector('button')!;

let root: HTMLElement;
let output: HTMLElement;

beforeEach(() => {
  root = document.createElement('div');
  root.innerHTML = `<div class="jp-OutputArea-output">${PANEL}</div><a href="#">x</a>`;
  output = root.firstElementChild as HTMLElement;
  document.body.replaceChildren(root);
});

it('a button that does nothing now says so, and keeps the focus', () => {
  const launch = launchIn(root);
  launch.focus();
  markBlocked(launch);
  expect(launch.getAttribute('aria-disabled')).toBe('true');
  expect(document.activeElement).toBe(launch);
  launch.classList.remove('mnt-blocked');
  markBlocked(launch);
  expect(launch.hasAttribute('aria-disabled')).toBe(false);
});

it('a panel that is drawn again has the focus where it was', () => {
  const focus = new KeptFocus(root);
  launchIn(root).focus();
  output.innerHTML = 'Loading widget...';
  focus.restore();
  expect(document.activeElement).toBe(document.body);
  output.innerHTML = PANEL;
  focus.restore();
  expect(document.activeElement).toBe(launchIn(root));
});

it('who went elsewhere is not fetched back', async () => {
  const focus = new KeptFocus(root);
  launchIn(root).focus();
  root.querySelector('a')!.focus();
  root.querySelector('a')!.blur();
  await new Promise(resolve => setTimeout(resolve));
  output.innerHTML = PANEL;
  focus.restore();
  expect(document.activeElement).toBe(document.body);
});
