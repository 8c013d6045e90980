/** WebSocket to the Jupyter server extension: reconnects, and resumes where it stopped. */

import type { ServerConnection } from '@jupyterlab/services';

import type { Api } from './api';
import { serverClock } from './clock';
import type { ServerMessage, Unwatch, Watch } from './schema';
import { type Connection, RequestError } from './tokens';

const FIRST_RETRY_MS = 1000;
const LAST_RETRY_MS = 30_000;

/** Until the next check for a missing server extension. */
const MISSING_RETRY_MS = 60_000;

/**
 * A page that is hidden for this long lets its socket go: while it is open, a Hub takes the server for
 * one that somebody uses, and never stops it.
 */
const HIDDEN_MS = 5 * 60_000;

/** Without a message for this long the connection is dead: nodes send heartbeats every second. */
const SILENT_MS = 45_000;

export interface IConnectionHandlers {
  /** Where to resume: the stream and the last number received. */
  position(): { stream: string; seq: number };
  message(message: ServerMessage): void;
  /** The socket is open: send all watches again. */
  opened(): void;
  changed(): void;
  /** Whether it is to stay connected while nobody sees the page. */
  staysWhileHidden(): boolean;
}

export class EventsConnection {
  constructor(
    private api: Api,
    private settings: ServerConnection.ISettings,
    private handlers: IConnectionHandlers
  ) {}

  state: Connection = 'connecting';
  lastHeard: number | null = null;

  start(): void {
    document.addEventListener('visibilitychange', this.look);
    void this.connect();
    this.look();
  }

  dispose(): void {
    document.removeEventListener('visibilitychange', this.look);
    window.clearTimeout(this.hidden);
    window.clearTimeout(this.timer);
    this.letGo();
  }

  /** Connect now instead of at the next attempt. */
  retry(): void {
    if (this.state !== 'live' && !this.isTrying) {
      window.clearTimeout(this.timer);
      this.waitMs = FIRST_RETRY_MS;
      void this.connect();
    }
  }

  send(message: Watch | Unwatch): void {
    if (this.socket?.readyState === WebSocket.OPEN) {
      this.socket.send(JSON.stringify(message));
    }
  }

  private async connect(): Promise<void> {
    this.isTrying = true;
    try {
      // A refused WebSocket gives no reason, so ask over HTTP first.
      await this.api.status();
    } catch (error) {
      this.isTrying = false;
      this.fail(error instanceof RequestError ? error.status : 0);
      return;
    }
    const { stream, seq } = this.handlers.position();
    const socket = new this.settings.WebSocket(this.api.eventsUrl(stream, seq));
    this.socket = socket;
    socket.onopen = () => {
      this.isTrying = false;
      this.waitMs = FIRST_RETRY_MS;
      this.handlers.opened();
    };
    socket.onmessage = (event: MessageEvent) => {
      if (serverClock.hasJumped) {
        void this.readClock();
      }
      this.lastHeard = serverClock.now();
      this.expectMore();
      this.setState('live');
      this.handlers.message(JSON.parse(event.data) as ServerMessage);
    };
    socket.onclose = () => {
      this.isTrying = false;
      if (this.socket === socket) {
        this.socket = null;
        this.fail(0);
      }
    };
  }

  /** Every answer has the server's time. */
  private async readClock(): Promise<void> {
    if (!this.isReading) {
      this.isReading = true;
      await this.api.status().catch(() => undefined);
      this.isReading = false;
    }
  }

  private fail(status: number): void {
    window.clearTimeout(this.silence);
    const waitMs = status === 404 ? MISSING_RETRY_MS : this.waitMs;
    this.waitMs = Math.min(2 * this.waitMs, LAST_RETRY_MS);
    this.timer = window.setTimeout(this.reconnect, waitMs);
    this.setState(
      status === 404 ? 'missing' : status === 403 ? 'forbidden' : 'retrying'
    );
    this.handlers.changed();
  }

  /** A hidden page reconnects once it is visible again. */
  private reconnect = (): void => {
    if (!document.hidden && !this.isTrying && this.socket === null) {
      window.clearTimeout(this.timer);
      void this.connect();
    }
  };

  /** Called as the page is hidden or shown. */
  private look = (): void => {
    window.clearTimeout(this.hidden);
    if (document.hidden) {
      this.hidden = window.setTimeout(() => {
        if (!this.handlers.staysWhileHidden()) {
          this.letGo();
        }
        this.look();
      }, HIDDEN_MS);
    } else {
      this.reconnect();
    }
  };

  /** Keep what is shown, and update it once the page is visible. */
  private letGo(): void {
    if (this.socket) {
      const { socket } = this;
      this.socket = null;
      window.clearTimeout(this.silence);
      socket.close();
    }
  }

  private expectMore(): void {
    window.clearTimeout(this.silence);
    this.silence = window.setTimeout(() => this.socket?.close(), SILENT_MS);
  }

  private setState(state: Connection): void {
    if (this.state !== state) {
      this.state = state;
      this.handlers.changed();
    }
  }

  private socket: WebSocket | null = null;
  private hidden = 0;
  private timer = 0;
  private silence = 0;
  private waitMs = FIRST_RETRY_MS;
  private isTrying = false;
  private isReading = false;
}
