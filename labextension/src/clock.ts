/** The Jupyter server's clock, by which the page says how long ago something was. */

/** A Date header has whole seconds. */
const RESOLUTION_S = 1;

/** A jump of this computer's clock that cannot be a rounding. */
const JUMP_S = 1;

/** Corrects this computer's clock, which may be off, by the server's answers. */
export class ServerClock {
  /**
   * How far this computer's clock is ahead of the server's, in seconds; 0 as long as nothing says
   * otherwise.
   */
  aheadS = 0;

  /** Unix time. */
  now(): number {
    return Date.now() / 1000 - this.aheadS;
  }

  /** Take the Date header of an answer to a request that was sent at `sentMs` by {@link Date.now}. */
  hear(header: string | null, sentMs: number): void {
    this.begunMs = begunMs();
    const told = Date.parse(header ?? '') / 1000;
    // The answer was written at some time since then, within the second that it says.
    const least = sentMs / 1000 - (told + RESOLUTION_S);
    const most = Date.now() / 1000 - told;
    if (this.aheadS < least || this.aheadS > most) {
      this.aheadS = (least + most) / 2;
    }
  }

  /** Whether this computer's clock was set, or the computer slept, since the last answer. */
  get hasJumped(): boolean {
    return (
      this.begunMs !== null &&
      Math.abs(begunMs() - this.begunMs) > 1000 * JUMP_S
    );
  }

  private begunMs: number | null = null;
}

/** When this page began, by this computer's clock as it is now. */
function begunMs(): number {
  return Date.now() - performance.now();
}

/** One per page, as its server is. */
export const serverClock = new ServerClock();
