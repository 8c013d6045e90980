import type { JobEvent } from '../schema';
import {
  laneEvents,
  markLabel,
  marksOf,
  sentence
} from '../liveview/stack/events';
import { stored, summary } from './samples';

const saved = (time_s: number): JobEvent => ({
  kind: 'saved',
  time_s,
  step: time_s
});

describe('events of a job', () => {
  it('are those of the summary and every evaluation, in their order', () => {
    const store = stored({
      summary: summary(undefined, {
        events: [{ kind: 'started', time_s: 1000 }, saved(1003)]
      }),
      evaluation: { time_s: [1002, 1004], step: [2, 4], loss: [3, 2] }
    });
    expect(laneEvents(store).map(one => [one.kind, one.time_s])).toEqual([
      ['started', 1000],
      ['evaluated', 1002],
      ['saved', 1003],
      ['evaluated', 1004]
    ]);
  });

  it('of a job saved before there were any are its evaluations', () => {
    expect(laneEvents(stored())).toEqual([]);
  });
});

describe('marks in the lane', () => {
  const place = (time: number) => time;
  const ends = [50, 500] as const;

  it('are one where events are near, of the most important kind', () => {
    const events: JobEvent[] = [
      saved(100),
      { kind: 'failed', time_s: 105 },
      saved(110),
      saved(300)
    ];
    const marks = marksOf(events, place, ends);
    expect(marks.map(one => [one.x, one.events.length, one.main.kind])).toEqual(
      [
        [100, 3, 'failed'],
        [300, 1, 'saved']
      ]
    );
    expect(marks.map(markLabel)).toEqual(['failed, 2 more', 'saved at 300']);
  });

  it('have the length of what lasted, also of what began before the range', () => {
    const [early, late] = marksOf(
      [
        { kind: 'traffic', time_s: 10, end_s: 90 },
        { kind: 'traffic', time_s: 400 }
      ],
      place,
      ends
    );
    expect([early.x, early.end]).toEqual([50, 90]);
    expect([late.x, late.end]).toEqual([400, 500]);
  });

  it('of changed settings say what and after which step', () => {
    const label = 'train.steps 2000 → 5000, by ada@lab';
    const event: JobEvent = { kind: 'changed', time_s: 100, step: 1200, label };
    const [mark] = marksOf([event], place, ends);
    expect(markLabel(mark)).toBe('settings changed');
    expect(sentence(event)).toContain(`changed after step 1,200: ${label}`);
  });

  it('leave out what is not in the range', () => {
    const events: JobEvent[] = [
      saved(10),
      saved(700),
      { kind: 'traffic', time_s: 10, end_s: 20 }
    ];
    expect(marksOf(events, place, ends)).toEqual([]);
    expect(marksOf([saved(60)], () => NaN, ends)).toEqual([]);
  });
});
