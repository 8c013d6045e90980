import { cleanup, render, screen } from '@testing-library/react';
import * as React from 'react';

import { PipelineStrip } from '../liveview/strips/pipeline';
import { rankSummary, stored, summary, THEME } from './samples';

afterEach(cleanup);

const CHOICE = { rank: null, node: null };

function strip(coding?: number) {
  const compared_transfers = [
    { boundary: 1, ratio_db: 41.8 },
    { boundary: 0, is_gradient: true, ratio_db: 17.2 }
  ];
  const ranks = [
    rankSummary(0),
    rankSummary(1, { coding, compared_transfers })
  ];
  const store = stored({ summary: summary(ranks) });
  render(
    <PipelineStrip
      store={store}
      theme={THEME}
      choice={CHOICE}
      pick={jest.fn()}
    />
  );
}

describe('the shares of a step', () => {
  it('have no encoding where nothing is sent in fewer bits', () => {
    strip();
    expect(screen.queryByText('encoding')).toBeNull();
    const [bar] = screen.getAllByRole('img', { name: /computing 50/ });
    expect(bar.children).toHaveLength(4);
  });

  it('have it next to computing, for all ranks, where one encodes', () => {
    strip(0.04);
    screen.getByText('encoding');
    const bars = screen.getAllByRole('img', { name: /computing 50/ });
    expect(bars.map(bar => bar.children)).toEqual([
      expect.objectContaining({ length: 5 }),
      expect.objectContaining({ length: 5 })
    ]);
    screen.getByRole('img', { name: /computing 50.*, encoding 4/ });
    screen.getByTitle(/bits; 42 dB .* to stage 2; 17 dB .* to stage 0$/);
  });
});
