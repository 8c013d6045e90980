import { serverClock } from '../clock';
import { EventsConnection } from '../connection';

const MINUTE_MS = 60_000;

class Socket {
  static all: Socket[] = [];
  constructor(readonly url: string) {
    Socket.all.push(this);
  }
  readyState = 1;
  isOpen = true;
  onopen = () => undefined;
  onclose = () => undefined;
  onmessage = (_: unknown) => undefined;
  close() {
    this.isOpen = false;
    this.onclose();
  }
}

let isHidden = false;
let stays = false;
let asked = 0;
let connection: EventsConnection;

function hide(hidden: boolean) {
  isHidden = hidden;
  document.dispatchEvent(new Event('visibilitychange'));
}

/** Until what was asked for over HTTP is there. */
async function settle() {
  for (let i = 0; i < 5; i++) {
    await Promise.resolve();
  }
}

const open = () => Socket.all.filter(one => one.isOpen);

beforeEach(async () => {
  jest.useFakeTimers();
  isHidden = stays = false;
  Socket.all = [];
  Object.defineProperty(document, 'hidden', {
    configurable: true,
    get: () => isHidden
  });
  asked = 0;
  const api = {
    status: async () => {
      asked += 1;
      return {};
    },
    eventsUrl: (stream: string, seq: number) => `${stream}/${seq}`
  };
  let seq = 0;
  connection = new EventsConnection(api as any, { WebSocket: Socket } as any, {
    position: () => ({ stream: 's', seq }),
    message: () => void (seq += 1),
    opened: () => undefined,
    changed: () => undefined,
    staysWhileHidden: () => stays
  });
  connection.start();
  await settle();
  Socket.all[0].onopen();
  Socket.all[0].onmessage({ data: '{}' });
});

afterEach(() => {
  connection.dispose();
  jest.useRealTimers();
});

/** Messages come every 10 s, as long as somebody is connected. */
function pass(minutes: number) {
  for (let i = 0; i < 6 * minutes; i++) {
    open().forEach(one => one.onmessage({ data: '{}' }));
    jest.advanceTimersByTime(MINUTE_MS / 6);
  }
}

test('a page that is hidden for minutes lets its socket go and goes on where it was', async () => {
  hide(true);
  pass(4);
  expect(open()).toHaveLength(1);
  pass(2);
  expect(open()).toHaveLength(0);
  expect(connection.state).toBe('live');
  pass(60);
  expect(Socket.all).toHaveLength(1);
  hide(false);
  await settle();
  expect(open().map(one => one.url)).toEqual(['s/31']);
});

test('a page that is hidden again and again for a short time stays connected', () => {
  for (let i = 0; i < 5; i++) {
    hide(true);
    pass(4);
    hide(false);
  }
  expect(Socket.all).toHaveLength(1);
  expect(open()).toHaveLength(1);
});

test('who wants notices on the desktop stays connected', () => {
  stays = true;
  hide(true);
  pass(30);
  expect(open()).toHaveLength(1);
  stays = false;
  pass(6);
  expect(open()).toHaveLength(0);
});

test('a connection that broke while the page was hidden is tried again when it is shown', async () => {
  hide(true);
  open()[0].close();
  pass(3);
  expect(Socket.all).toHaveLength(1);
  hide(false);
  await settle();
  expect(open()).toHaveLength(1);
});

test('the server is asked for the time once this computer’s clock was set', () => {
  serverClock.hear(new Date().toUTCString(), Date.now());
  const before = asked;
  pass(1);
  expect(asked).toBe(before);
  jest.setSystemTime(Date.now() + 60 * MINUTE_MS);
  open().forEach(one => one.onmessage({ data: '{}' }));
  expect(asked).toBe(before + 1);
});
