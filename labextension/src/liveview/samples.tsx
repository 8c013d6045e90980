/** Samples: the model's newest text for each prompt, and earlier ones. */

import * as React from 'react';

import * as formats from '../formats';
import type { WrittenText } from '../schema';
import { trans } from '../trans';

/** Texts by prompt, newest first, in the order of the newest texts. */
function byPrompt(texts: ReadonlyArray<WrittenText>) {
  const found = new Map<string, WrittenText[]>();
  for (const one of texts) {
    const earlier = found.get(one.prompt) ?? [];
    found.delete(one.prompt);
    found.set(one.prompt, [one, ...earlier]);
  }
  return [...found];
}

export function Samples(props: {
  texts: ReadonlyArray<WrittenText>;
}): JSX.Element | null {
  const { texts } = props;
  if (!texts.length) {
    return null;
  }
  return (
    <section className="mnt-samples" aria-label={trans.__('Samples')}>
      <h4>{trans.__('Samples')}</h4>
      {byPrompt(texts).map(([prompt, [newest, ...earlier]]) => (
        <article key={prompt} aria-label={prompt}>
          <p className="mnt-prompt" dir="auto">
            {prompt}
          </p>
          <Written one={newest} />
          {earlier.length > 0 && (
            <details>
              <summary>{trans.__('Earlier: %1', earlier.length)}</summary>
              {earlier.map((one, i) => (
                <Written key={earlier.length - i} one={one} />
              ))}
            </details>
          )}
        </article>
      ))}
    </section>
  );
}

function Written(props: { one: WrittenText }): JSX.Element {
  const { one } = props;
  return (
    <p className="mnt-written">
      <span className="s">{trans.__('step %1', formats.count(one.step))}</span>
      <span className="mnt-text" dir="auto">
        {one.text || formats.ABSENT}
      </span>
    </p>
  );
}
