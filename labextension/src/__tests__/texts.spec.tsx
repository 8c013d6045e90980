import { render, screen } from '@testing-library/react';
import * as React from 'react';

import { Samples } from '../liveview/samples';
import type { WrittenText } from '../schema';
import { written } from './samples';

describe('samples', () => {
  const shown = (texts: WrittenText[]) => render(<Samples texts={texts} />);
  const words = (node: Element) =>
    [...node.querySelectorAll('.mnt-text')].map(one => one.textContent);

  it('are nothing where a job has none', () => {
    expect(shown([]).container.innerHTML).toBe('');
  });

  it('show the newest for each prompt, and the ones before it folded, newest first', () => {
    shown([
      written(0, 'a', 'One'),
      written(0, 'b', 'Two'),
      written(5, 'c', 'One'),
      written(5, 'd', 'Two'),
      written(9, 'e', 'One')
    ]);
    const one = screen.getByRole('article', { name: 'One' });
    expect(words(one)).toEqual(['e', 'c', 'a']);
    expect(one.querySelector('.mnt-written')!.textContent).toContain('step 9');
    const earlier = one.querySelector('details')!;
    expect(earlier.open).toBe(false);
    expect(earlier.querySelector('summary')!.textContent).toBe('Earlier: 2');
    expect(words(earlier)).toEqual(['c', 'a']);
    const two = screen.getByRole('article', { name: 'Two' });
    expect(words(two)).toEqual(['d', 'b']);
  });

  it('stand in the order of the last evaluation, also when the first texts are gone', () => {
    const { container } = shown([
      written(0, 'b', 'Two'),
      written(5, 'c', 'One'),
      written(5, 'd', 'Two')
    ]);
    const prompts = [...container.querySelectorAll('.mnt-prompt')];
    expect(prompts.map(one => one.textContent)).toEqual(['One', 'Two']);
  });

  it('are text, whatever the model writes', () => {
    const evil = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
    const { container } = shown([written(3, evil, '<b>bold</b>')]);
    expect(container.querySelector('img, script, b')).toBeNull();
    expect(words(container)).toEqual([evil]);
    expect(container.querySelector('.mnt-prompt')!.textContent).toBe(
      '<b>bold</b>'
    );
  });

  it('that are empty say so', () => {
    expect(words(shown([written(3, '')]).container)).toEqual(['n/a']);
  });
});
