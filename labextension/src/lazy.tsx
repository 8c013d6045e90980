/** Lazy parts: loaded when they are first opened, so that the page opens quickly. */

import { ReactWidget } from '@jupyterlab/apputils';
import { Panel, type Widget } from '@lumino/widgets';
import * as React from 'react';

import { Alert } from './alert';
import { Button } from './controls';
import type { IProblem } from './problem';
import { problemOf, RequestError } from './tokens';
import { trans } from './trans';

/**
 * Load a part.
 *
 * @throws RequestError the server does not answer, or has another version by now.
 */
export async function loaded<Part>(load: () => Promise<Part>): Promise<Part> {
  try {
    return await load();
  } catch (error) {
    // The bundler's name for it, whatever the reason.
    throw (error as Error).name === 'ChunkLoadError'
      ? new RequestError(notLoaded(), 0)
      : error;
  }
}

function notLoaded(): IProblem {
  return {
    cause: trans.__(
      'This part of the page could not be loaded from the Jupyter server'
    ),
    fix: trans.__(
      'try again once the server answers; if jupyter_mntrain was upgraded or removed there, save and reload the page'
    )
  };
}

/** A placeholder for a lazy part; says that it is loading, or why it failed. */
export abstract class LazyWidget<Content extends Widget> extends Panel {
  /** What it shows, once it is loaded. */
  content: Content | null = null;

  constructor() {
    super();
    this.addClass('mnt-lazy');
  }

  /** Loads the part that draws, and makes its widget. */
  protected abstract make(): Promise<Content>;

  /** Load it, unless it is loaded or loading. */
  load(): Promise<void> {
    this.loading ??= this.begin();
    return this.loading;
  }

  private async begin(): Promise<void> {
    this.say(
      <p className="m" role="status">
        {trans.__('Loading…')}
      </p>
    );
    try {
      const content = await loaded(() => this.make());
      if (this.isDisposed) {
        content.dispose();
        return;
      }
      this.clear();
      this.content = content;
      this.addWidget(content);
    } catch (error) {
      this.loading = null;
      if (!this.isDisposed) {
        this.say(
          <Alert problem={problemOf(error)}>
            <Button
              label={trans.__('Try again')}
              run={() => void this.load()}
            />
          </Alert>
        );
      }
    }
  }

  private say(words: JSX.Element): void {
    this.clear();
    const said = ReactWidget.create(<div className="mnt">{words}</div>);
    said.addClass('mnt-unloaded');
    this.addWidget(said);
  }

  private clear(): void {
    this.widgets.slice().forEach(widget => widget.dispose());
  }

  private loading: Promise<void> | null = null;
}
