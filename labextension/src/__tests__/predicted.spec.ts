import { predictedWords } from '../liveview/status/predicted';
import { valueRange } from '../liveview/charts/scale';

describe('the predicted step', () => {
  it('is said alone if it was right', () => {
    expect(predictedWords(1.25, null)).toBe('predicted: 1.3\u00a0s per step');
  });

  it('is followed by what is off, and why', () => {
    const said = predictedWords(0.8, {
      ratio: 1.5,
      causes: [
        { kind: 'computing', ratio: 3.14, rank: 1, is_guessed: true },
        {
          kind: 'link',
          ratio: 900,
          rank: 0,
          peer: 1,
          took_s: 0.09,
          planned_s: 0.0001
        },
        { kind: 'traffic', ratio: 0.4, node: 'wopr' },
        { kind: 'computing', ratio: 1.2, rank: 0 }
      ]
    });
    expect(said).toContain(
      'it is 50\u202f% slower: rank 1 computes 3.1\u00a0×'
    );
    expect(said).toContain('(its speed was guessed)');
    expect(said).toContain(
      'messages from rank 0 to rank 1 take 90\u00a0ms, planned 0.1\u00a0ms'
    );
    expect(said).toContain(
      'others use 40\u202f% of the link of wopr; and 1 more'
    );
  });

  it('names waiting where nothing else differs', () => {
    expect(predictedWords(1, { ratio: 1.2 })).toContain('ranks wait longer');
    expect(predictedWords(1, { ratio: 0.5 })).toContain(
      '2.0\u00a0× faster: ranks wait less'
    );
  });

  it('is on the scale', () => {
    const levels = [{ at: 150, label: 'predicted', isDashed: true }];
    const [, high] = valueRange({ levels }, 'auto', 90, 100);
    expect(high).toBeGreaterThan(150);
  });
});
