import { launched } from '../plugins/commands/again';
import { isAcknowledged, isForced } from '../plugins/commands/confirmation';
import { RequestError } from '../tokens';

jest.mock('../plugins/commands/confirmation', () => ({
  isAcknowledged: jest.fn(),
  isForced: jest.fn()
}));

const note = { kind: 'slow-link', cause: 'the cable', fix: '' } as const;
const full = { kind: 'disk-full', cause: 'full', found: [note] } as any;
const mixed = { kind: 'mixed-versions', cause: 'torch differs' } as any;

/** A launch that is refused until everything is acknowledged. */
function launch(...refusals: any[]) {
  return jest.fn((): Promise<any> => {
    const next = refusals.shift();
    return next
      ? Promise.reject(new RequestError(next, 409))
      : Promise.resolve('launched');
  });
}

it('asks for what each refusal is about, with all that the doctor found', async () => {
  jest.mocked(isAcknowledged).mockResolvedValue(true);
  jest.mocked(isForced).mockResolvedValue(true);
  const launches = launch(mixed, full);
  expect(await launched(launches)).toBe('launched');
  expect(launches.mock.calls).toEqual([
    [{}],
    [{ mixed_versions: true }],
    [{ mixed_versions: true, skips_doctor: true }]
  ]);
  expect(isForced).toHaveBeenCalledWith([full, note]);
});

it('starts nothing if the person does not say so', async () => {
  jest.mocked(isForced).mockResolvedValue(false);
  const launches = launch(full);
  expect(await launched(launches)).toBeUndefined();
  expect(launches).toHaveBeenCalledTimes(1);
});

it('asks nothing of another refusal', async () => {
  const launches = launch({ cause: 'no GPU is free' });
  await expect(launched(launches)).rejects.toThrow('no GPU');
});
