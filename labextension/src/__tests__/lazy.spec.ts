import { Widget } from '@lumino/widgets';
import { waitFor } from '@testing-library/react';

import { LazyWidget } from '../lazy';

/** A part that cannot be loaded until `isThere`. */
class Part extends LazyWidget<Widget> {
  constructor(private failure: Error | null) {
    super();
  }

  protected async make(): Promise<Widget> {
    this.asked += 1;
    if (!this.isThere && this.failure) {
      throw this.failure;
    }
    const made = new Widget();
    made.addClass('part');
    return made;
  }

  asked = 0;
  isThere = false;
}

function chunkError(): Error {
  return Object.assign(new Error('Loading chunk 7 failed'), {
    name: 'ChunkLoadError'
  });
}

function attached(failure: Error | null = null): Part {
  const part = new Part(failure);
  Widget.attach(part, document.body);
  return part;
}

/** What stands there, once React has drawn it. */
async function said(part: Part, words: string): Promise<string> {
  await waitFor(() => expect(part.node.textContent).toContain(words));
  return part.node.textContent!;
}

it('a part is loaded once, and is said to be on its way', async () => {
  const part = attached();
  const first = part.load();
  expect(part.load()).toBe(first);
  await first;
  await part.load();
  expect(part.asked).toBe(1);
  expect(part.node.children).toHaveLength(1);
  expect(part.node.firstElementChild!.className).toContain('part');
});

it('what cannot be loaded says what to do, and is tried again by its button', async () => {
  const part = attached(chunkError());
  await part.load();
  const words = await said(part, 'could not be loaded from the Jupyter server');
  expect(words).toContain('reload the page');
  expect(words).not.toContain('chunk');
  part.isThere = true;
  part.node.querySelector('button')!.click();
  await waitFor(() => expect(part.node.querySelector('.part')).not.toBeNull());
  expect(part.asked).toBe(2);
  expect(part.node.querySelector('[role=alert]')).toBeNull();
});

it('any other error is told as it is', async () => {
  const part = attached(new Error('no such chart'));
  await part.load();
  await said(part, 'no such chart');
});

it('a part that comes after its tab was closed is given up', async () => {
  const part = attached();
  const loading = part.load();
  part.dispose();
  await loading;
  expect(part.content).toBeNull();
});
