/** Formats of numbers and times, the same everywhere. Unknown values are "n/a", never 0. */

import { serverClock } from './clock';
import type { Capacity } from './schema';
import { trans } from './trans';

export const ABSENT = 'n/a';

/** Numbers from here on are written with an exponent. */
const LONGEST = 1e15;

const NARROW = '\u202f';
export const NBSP = '\u00a0';

/** A number that may be unknown: `null`, or NaN in tables of numbers. */
export type Maybe = number | null | undefined;

/** NaN or infinity, as JSON carries it. */
export type NonFinite = 'NaN' | 'Infinity' | '-Infinity';

const NON_FINITE: Record<NonFinite, string> = {
  NaN: 'NaN',
  Infinity: '∞',
  '-Infinity': '−∞'
};

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}

export function nonFinite(value: Maybe | NonFinite): value is NonFinite {
  return typeof value === 'string' && value in NON_FINITE;
}

export function isKnown(value: Maybe | NonFinite): value is number | NonFinite {
  return isNumber(value) || nonFinite(value);
}

function fixed(value: number, digits: number): string {
  if (Math.abs(value) >= LONGEST) {
    return value.toExponential(2);
  }
  // toFixed rounds the exact value, as Python does; toLocaleString its shortest decimal.
  const [whole, part] = value.toFixed(digits).split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ',');
  return part ? `${grouped}.${part}` : grouped;
}

/** Tokens per second: whole; below ten with one decimal. */
export function rate(value: Maybe): string {
  if (!isNumber(value)) {
    return ABSENT;
  }
  const size = Math.abs(value);
  return fixed(value, size >= 99.95 || !size ? 0 : size >= 9.995 ? 1 : 2);
}

export function count(value: Maybe): string {
  return isNumber(value) ? fixed(value, 0) : ABSENT;
}

/** A fraction, 0..1. */
export function percent(value: Maybe, digits = 1): string {
  if (!isNumber(value)) {
    return ABSENT;
  }
  const least = 10 ** -digits;
  return 100 * value > 0 && 100 * value < least
    ? `<${NARROW}${fixed(least, digits)}${NARROW}%`
    : `${fixed(100 * value, digits)}${NARROW}%`;
}

export function wholePercent(value: Maybe): string {
  return percent(value, 0);
}

/** A fraction without the percent sign, for columns headed "%". */
export function bareShare(value: Maybe): string {
  return isNumber(value) ? fixed(100 * value, 1) : ABSENT;
}

/** A loss; NaN and infinity are shown as such. */
export function loss(value: Maybe | NonFinite): string {
  if (nonFinite(value)) {
    return NON_FINITE[value];
  }
  return isNumber(value) ? fixed(value, 3) : ABSENT;
}

/** For an axis: with the decimals that tell values `step` apart. */
export function plain(value: number, step: number): string {
  const digits = step > 0 ? -Math.floor(Math.log10(step) + 1e-9) : 0;
  return value.toLocaleString('en-US', {
    maximumFractionDigits: Math.min(Math.max(digits, 0), 12)
  });
}

/** For an axis: 20 k from ten thousand on, with the decimals that tell values `step` apart. */
export function shortCount(value: number, step: number): string {
  return Math.abs(value) < 10_000
    ? plain(value, step)
    : `${plain(value / 1000, step / 1000)}${NARROW}k`;
}

const AMOUNTS = [
  [1e12, 'T'],
  [1e9, 'G'],
  [1e6, 'M'],
  [1e3, 'k']
] as const;

/** A large number with a decimal prefix and one decimal: 41.3 M. */
export function amount(value: Maybe): string {
  if (!isNumber(value)) {
    return ABSENT;
  }
  const found = AMOUNTS.find(([size]) => value >= size && size > 1e3);
  return found
    ? `${fixed(value / found[0], 1)}${NARROW}${found[1]}`
    : fixed(value, 0);
}

/** For an axis: 40 M, with the decimals that tell values `step` apart. */
export function shortAmount(value: number, step: number): string {
  const found = AMOUNTS.find(([size]) => value >= size);
  return found
    ? `${plain(value / found[0], step / found[0])}${NARROW}${found[1]}`
    : plain(value, step);
}

export function seconds(value: Maybe): string {
  if (!isNumber(value)) {
    return ABSENT;
  }
  return value < 1
    ? `${fixed(1000 * value, value < 0.01 ? 1 : 0)}${NBSP}ms`
    : `${fixed(value, 1)}${NBSP}s`;
}

/** A link's latency: 25 ms, 0.4 ms, 25 µs. */
export function latency(value: Maybe): string {
  return isNumber(value) && value < 1e-4
    ? `${fixed(1e6 * value, 0)}${NBSP}µs`
    : seconds(value);
}

/** A duration in at most two units: "4 h 04 min". */
export function duration(value: Maybe): string {
  if (!isNumber(value)) {
    return ABSENT;
  }
  const total = Math.max(0, Math.round(value));
  const [days, hours] = [Math.floor(total / 86_400), Math.floor(total / 3600)];
  const minutes = Math.floor(total / 60);
  const two = (n: number) => String(n).padStart(2, '0');
  if (days > 0) {
    return `${days}${NBSP}d ${two(hours % 24)}${NBSP}h`;
  }
  if (hours > 0) {
    return `${hours}${NBSP}h ${two(minutes % 60)}${NBSP}min`;
  }
  if (minutes > 0) {
    return `${minutes}${NBSP}min ${two(total % 60)}${NBSP}s`;
  }
  return `${total}${NBSP}s`;
}

/** Below so many seconds: the unit's seconds, its name, and the digits after its point. */
const RANGES: ReadonlyArray<[number, number, string, number]> = [
  [90, 1, 's', 0],
  [5400, 60, 'min', 0],
  [129_600, 3600, 'h', 1],
  [Infinity, 86_400, 'd', 1]
];

/** A duration that is not known exactly: 12 to 15 min; about 13 min, if both are. */
export function between(low: number, high: number): string {
  const [, factor, unit, digits] = RANGES.find(([below]) => high < below)!;
  const [from, to] = [low, high].map(one =>
    fixed(Math.max(0, one) / factor, digits)
  );
  return from === to
    ? trans.__('about %1', `${to}${NBSP}${unit}`)
    : trans.__('%1 to %2', from, `${to}${NBSP}${unit}`);
}

/** How long a job still takes, and how sure that is. */
export function timeLeft(numbers: {
  remaining_s?: Maybe;
  remaining_low_s?: Maybe;
  remaining_high_s?: Maybe;
}): string {
  const { remaining_s, remaining_low_s: low, remaining_high_s: high } = numbers;
  return isNumber(low) && isNumber(high)
    ? between(low, high)
    : duration(remaining_s);
}

/** Local time of day, with the date unless it is today. */
export function clock(time: Maybe, withSeconds = false): string {
  if (!isNumber(time)) {
    return ABSENT;
  }
  const date = new Date(1000 * time);
  const timeStyle = withSeconds ? 'medium' : 'short';
  const text = date.toLocaleTimeString('en-GB', { timeStyle });
  if (
    date.toDateString() === new Date(1000 * serverClock.now()).toDateString()
  ) {
    return text;
  }
  const [day, month] = ['numeric', 'short'] as const;
  return `${date.toLocaleDateString('en-GB', { day, month })} ${text}`;
}

/** Date and time, with seconds: of what may be read on another day. */
export function dateTime(time: Maybe): string {
  return isNumber(time)
    ? new Date(1000 * time).toLocaleString('en-GB', {
        dateStyle: 'medium',
        timeStyle: 'medium'
      })
    : ABSENT;
}

const BIT_UNITS = [
  [1e9, 'Gbit/s'],
  [1e6, 'Mbit/s'],
  [1e3, 'kbit/s']
] as const;

function threeDigits(value: number): string {
  const text = fixed(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

/** Bytes per second as bits per second, with decimal prefixes. */
export function bitRate(bytesPerS: Maybe): string {
  if (!isNumber(bytesPerS)) {
    return ABSENT;
  }
  const bits = 8 * bytesPerS;
  for (const [divisor, unit] of BIT_UNITS) {
    if (bits >= divisor) {
      return `${threeDigits(bits / divisor)}${NBSP}${unit}`;
    }
  }
  return `${fixed(bits, 0)}${NBSP}bit/s`;
}

/** For an axis: "40 M" of bits per second. */
export function shortBitRate(bytesPerS: number): string {
  return bytesPerS === 0
    ? '0'
    : bitRate(bytesPerS).replace('bit/s', '').replace('.0', '');
}

export function gibibytes(bytes: Maybe, withUnit = true): string {
  if (!isNumber(bytes)) {
    return ABSENT;
  }
  const text = fixed(bytes / 2 ** 30, 1);
  return withUnit ? `${text}${NBSP}GiB` : text;
}

/** Speed of a disk: 40 MB/s, 1.2 GB/s. */
export function byteRate(bytesPerS: number): string {
  return bytesPerS >= 1e9
    ? `${fixed(bytesPerS / 1e9, 1)}${NBSP}GB/s`
    : `${fixed(bytesPerS / 1e6, bytesPerS >= 1e7 ? 0 : 1)}${NBSP}MB/s`;
}

/** Memory in MiB or GiB. */
export function memory(bytes: Maybe): string {
  return isNumber(bytes) && bytes < 2 ** 30
    ? `${fixed(bytes / 2 ** 20, 0)}${NBSP}MiB`
    : gibibytes(bytes);
}

/** Size of a file: 250 B, 1.2 MB. */
export function fileSize(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let power = 0;
  while (bytes >= 1000 && power < units.length - 1) {
    bytes /= 1000;
    power += 1;
  }
  return `${fixed(bytes, power && bytes < 100 ? 1 : 0)}${NBSP}${units[power]}`;
}

/** How long ago something was, in its largest unit: 12 s, 5 min, 3 h, 2 days. */
function age(secondsAgo: number): string {
  const total = Math.max(0, Math.round(secondsAgo));
  const days = Math.floor(total / 86_400);
  const units = [
    [days, 1, days === 1 ? 'day' : 'days'],
    [total, 3600, 'h'],
    [total, 60, 'min']
  ] as const;
  const fits = units.find(([amount, length]) => amount >= length);
  const [amount, length, unit] = fits ?? [total, 1, 's'];
  return `${count(Math.floor(amount / length))}${NBSP}${unit}`;
}

/** What disturbed the measurement of a link. */
const CONDITIONS: Partial<Record<string, string>> = {
  'beside a job': 'beside a job',
  'cut short': 'cut short',
  'short of CPU': 'while short of CPU'
};

/** Of one link or several, and how it is known: 941 Mbit/s, measured 3 days ago, beside a job. */
export function capacity(known: ReadonlyArray<Capacity>): string {
  const sizes = known.map(one => one.bytes_per_s);
  const [low, high] = [Math.min(...sizes), Math.max(...sizes)].map(bitRate);
  const unit = high.slice(high.lastIndexOf(NBSP));
  const range = `${low.endsWith(unit) ? low.slice(0, -unit.length) : low} to ${high}`;
  const measured = known.filter(one => one.source === 'measured');
  const exceeded = known.filter(one => one.is_exceeded).length;
  const some = exceeded < known.length ? 'some ' : '';
  const best = exceeded ? `${some}best seen, more than ` : '';
  const origins = [
    ...(measured.length < known.length
      ? [exceeded ? 'given' : 'as given']
      : []),
    ...(measured.length ? [whenMeasured(measured)] : [])
  ];
  const now = known.some(one => one.is_doubtful) ? ', slower now' : '';
  return `${low === high ? high : range}, ${best}${origins.join(' or ')}${now}`;
}

/** When, and what disturbed it: measured up to 3 days ago, some while short of CPU. */
function whenMeasured(found: ReadonlyArray<Capacity>): string {
  const times = found.map(one => one.time_s ?? 0);
  const [newest, oldest] = [Math.max(...times), Math.min(...times)].map(time =>
    age(serverClock.now() - time)
  );
  const isKnown = !times.includes(0);
  const when = `${oldest === newest ? '' : 'up to '}${oldest} ago`;
  const conditions = found.flatMap(
    ({ condition }) => CONDITIONS[condition ?? ''] ?? []
  );
  const some = conditions.length < found.length ? 'some ' : '';
  const said = [...new Set(conditions)].sort().join(' or ');
  return [
    isKnown ? `measured ${when}` : 'measured',
    ...(said ? [some + said] : [])
  ].join(isKnown ? ', ' : ' ');
}
