import { checkBundle } from '../liveview/bundle';
import { bundle, job, rank, series, written } from './samples';

describe('a bundle', () => {
  it('of ours is drawn', () => {
    expect(checkBundle(bundle()).bundle).toBeDefined();
  });

  it.each([
    ['nothing', null],
    ['text', 'job'],
    ['another id', bundle({ job: job({ job_id: '../etc' }) })],
    ['other rows', bundle({ series: series({ job_id: 'j-00000001' }) })],
    ['no parts', bundle({ job: job({ parts: undefined as any }) })],
    [
      'code for evaluations',
      bundle({ series: series({ evaluation: { loss: [{}] as any } }) })
    ],
    [
      'code for texts',
      bundle({
        series: series({ texts: [{ ...written(1), text: {} as any }] })
      })
    ],
    [
      'a text without end',
      bundle({ series: series({ texts: [written(1, 'x'.repeat(20_000))] }) })
    ],
    [
      'code for numbers',
      bundle({
        series: series({ ranks: [{ ...rank(0, 1), mfu: [{}] as any }] })
      })
    ]
  ])('with %s is not', (_, data) => {
    expect(checkBundle(data).problem).toBe('damaged');
  });

  it('holds no training data, wherever it comes from', () => {
    const data = { sequences: [{ runs: 3 } as any] };
    const { bundle: checked } = checkBundle(
      bundle({ series: series({ data }) })
    );
    expect(checked!.series.data).toBeNull();
  });

  it('of a newer version says so', () => {
    expect(checkBundle(bundle({ version: 99 })).problem).toBe('newer');
  });
});
