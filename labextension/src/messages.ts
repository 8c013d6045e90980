/** What the page says over the WebSocket. */

import type { Unwatch, Watch } from './schema';

export type PageMessage = Watch | Unwatch;
