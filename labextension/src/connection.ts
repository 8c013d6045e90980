/** WebSocket to the Jupyter server extension: reconnects, and resumes where it stopped. */

import type { ServerConnection } from '@jupyterlab/services';

import type { Api } from './api';
import type { ServerMessage, Unwatch, Watch } from './schema';
import { type Connection, RequestError } from './tokens';

const FIRST_RETRY_MS = 1000;
const LAST_RETRY_MS = 30_000;

/** Until the next check for a missing server extension. */
const MISSING_RETRY_MS = 60_000;

/** Without a message for this long the connection is dead: nodes send heartbeats every second. */
const SILENT_MS = 45_000;

export interface IConnectionHandlers {
  /** Where to resume: the stream and the last number received. */
  position(): { stream: string; seq: number };
  message(message: ServerMessage): void;
  /** The socket is open: send all watches again. */
  opened(): void;
  changed(): void;
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
    void this.connect();
  }

  /** Try to connect now instead of at the next try. */
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
      this.lastHeard = Date.now() / 1000;
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

  private fail(status: number): void {
    window.clearTimeout(this.silence);
    const waitMs = status === 404 ? MISSING_RETRY_MS : this.waitMs;
    this.waitMs = Math.min(2 * this.waitMs, LAST_RETRY_MS);
    this.timer = window.setTimeout(() => void this.whenVisible(), waitMs);
    this.setState(
      status === 404 ? 'missing' : status === 403 ? 'forbidden' : 'retrying'
    );
    this.handlers.changed();
  }

  /** A hidden page reconnects once it is visible again. */
  private whenVisible(): void {
    if (!document.hidden) {
      void this.connect();
      return;
    }
    const look = () => {
      if (!document.hidden) {
        document.removeEventListener('visibilitychange', look);
        if (!this.isTrying && this.socket === null) {
          void this.connect();
        }
      }
    };
    document.addEventListener('visibilitychange', look);
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
  private timer = 0;
  private silence = 0;
  private waitMs = FIRST_RETRY_MS;
  private isTrying = false;
}
