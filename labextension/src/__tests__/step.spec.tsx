import { cleanup, render, waitFor } from '@testing-library/react';
import * as React from 'react';

import { barsOf, timeTicks } from '../liveview/step/bars';
import { StepFold } from '../liveview/step/fold';
import { Gantt, spanText } from '../liveview/step/gantt';
import type { JobTrace, ShownStep, StepSpan } from '../schema';

const AXIS = { left: 100, right: 500, end: 2 };

const span = (
  kind: StepSpan['kind'],
  begin_s: number,
  end_s: number,
  more: Partial<StepSpan> = {}
): StepSpan => ({ kind, begin_s, end_s, ...more });

const RECORDED: ShownStep = {
  names: ['r0 wopr', 'r1 muthur'],
  spans: {
    seconds: 2,
    step: 50,
    ranks: [
      [
        span('F', 0, 1, { stage: 0, microbatch: 0 }),
        span('send', 1, 1.25, { stage: 0, microbatch: 0, peer: 1 }),
        span('update', 1.5, 2)
      ],
      [
        span('wait', 0, 1.25, { stage: 1, microbatch: 0, peer: 0 }),
        span('receive', 1, 1.25, { stage: 1, microbatch: 0, peer: 0 }),
        span('B', 1.25, 2.5, { stage: 1, microbatch: 0 })
      ]
    ]
  }
};
const PREDICTED: ShownStep = {
  ...RECORDED,
  spans: { ...RECORDED.spans, seconds: 1, step: null }
};
const NOTHING: ShownStep = { names: [], spans: { seconds: 0, ranks: [] } };

afterEach(cleanup);

it('draws each span where it was, in the lane of its kind', () => {
  const bars = barsOf(RECORDED, AXIS);
  expect(bars.map(one => [one.span.kind, one.row, one.x, one.width])).toEqual([
    ['F', 0, 100, 200],
    ['send', 0, 300, 50],
    ['update', 0, 400, 100],
    ['wait', 1, 100, 250],
    ['receive', 1, 300, 50],
    ['B', 1, 350, 150]
  ]);
  const [forward, sent] = bars;
  expect(sent.y).toBeGreaterThanOrEqual(forward.y + forward.height);
  expect(sent.height).toBeLessThan(forward.height / 2);
});

it('draws nothing outside the axis, whatever the times are', () => {
  const odd: ShownStep = {
    names: ['r0'],
    spans: { seconds: 2, ranks: [[span('F', -1, 0.5), span('B', 1.5, 9)]] }
  };
  for (const { x, width } of barsOf(odd, AXIS)) {
    expect(width).toBeGreaterThanOrEqual(0);
    expect(x).toBeGreaterThanOrEqual(AXIS.left);
    expect(x + width).toBeLessThanOrEqual(AXIS.right);
  }
});

it('draws nothing of nothing', () => {
  expect(barsOf(NOTHING, { ...AXIS, end: 0 })).toEqual([]);
  expect(timeTicks(0, 6)).toEqual([]);
  const steps = [{ title: 'step 1', step: NOTHING }];
  const { container } = render(<Gantt {...{ steps }} width={600} />);
  expect(container.querySelector('svg')).toBeNull();
});

it('has round times on the axis, none after its end', () => {
  expect(timeTicks(2, 6)).toEqual([0, 0.5, 1, 1.5, 2]);
  const many = timeTicks(0.0137, 6);
  expect(many.length).toBeLessThanOrEqual(7);
  expect(Math.max(...many)).toBeLessThanOrEqual(0.0137);
});

it('draws both steps over one axis, with a tooltip for each span', () => {
  const steps = [
    { title: 'step 50', step: RECORDED },
    { title: 'predicted', step: PREDICTED }
  ];
  const { container } = render(<Gantt {...{ steps }} width={600} />);
  const forward = [...container.querySelectorAll('[role=img] .mnt-span-F')];
  expect(forward).toHaveLength(2);
  const [first, second] = forward.map(one => one.getAttribute('width'));
  expect(first).toBe(second);
  const told = [...container.querySelectorAll('title')].map(
    one => one.textContent
  );
  for (const rank of RECORDED.spans.ranks.keys()) {
    for (const one of RECORDED.spans.ranks[rank]) {
      expect(told).toContain(spanText(one, rank, RECORDED.names));
    }
  }
  const sent = RECORDED.spans.ranks[0][1];
  expect(spanText(sent, 0, RECORDED.names)).toMatch(/r0 wopr.*r1 muthur.*250/);
});

function drawn(read: () => Promise<JobTrace>) {
  const { container } = render(
    <StepFold {...{ read }} isOver={true} width={600} />
  );
  const fold = container.querySelector('details')!;
  return { container, open: () => void (fold.open = true) };
}

it('asks for the steps only when opened', async () => {
  const read = jest.fn(async () => ({ recorded: RECORDED }));
  const { container, open } = drawn(read);
  expect(read).not.toHaveBeenCalled();
  open();
  await waitFor(() =>
    expect(container.querySelector('[role=img]')).not.toBeNull()
  );
  expect(read).toHaveBeenCalledTimes(1);
});

it('says in one line why there is nothing to draw', async () => {
  const { container, open } = drawn(async () => ({
    not_recorded: { kind: 'bad-spec', cause: 'it runs a script' }
  }));
  open();
  await waitFor(() =>
    expect(container.textContent).toContain('it runs a script')
  );
  expect(container.querySelector('[role=img]')).toBeNull();
});

it('says why they cannot be read', async () => {
  const { container, open } = drawn(() => Promise.reject(new Error('gone')));
  open();
  await waitFor(() =>
    expect(container.querySelector('[role=status]')?.textContent).toContain(
      'gone'
    )
  );
});
