/** Messages from the page to the server, over the WebSocket. */

import type { Unwatch, Watch } from './schema';

export type PageMessage = Watch | Unwatch;
