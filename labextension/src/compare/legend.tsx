/** Legend of compared runs: letter, color and dash, and the figures of each. */

import * as React from 'react';

import { serverClock } from '../clock';
import * as formats from '../formats';
import { Icon } from '../icons';
import { DASHES, type ITheme } from '../liveview/charts/theme';
import { Measured } from '../measured';
import { stepText } from '../runs/columns';
import { durationOf, type IRun } from '../runs/run';
import { trans } from '../trans';
import { stateWord } from '../words';
import type { ILettered } from './charts';

export function Legend(props: {
  runs: ReadonlyArray<ILettered & { run: IRun }>;
  hidden: ReadonlySet<string>;
  turn: (letter: string) => void;
  theme: ITheme;
}): JSX.Element {
  const { runs, hidden, turn, theme } = props;
  const heads = [
    trans.__('step'),
    trans.__('best evaluation'),
    trans.__('tok/s'),
    trans.__('MFU'),
    trans.__('duration')
  ];
  return (
    <table className="mnt-legend">
      <thead>
        <tr>
          <th scope="col" colSpan={2}>
            {trans.__('shown')}
          </th>
          <th scope="col">{trans.__('run')}</th>
          {heads.map(head => (
            <th key={head} scope="col" className="mnt-right">
              {head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {runs.map(one => (
          <Run
            key={one.letter}
            one={one}
            isShown={!hidden.has(one.letter)}
            turn={() => turn(one.letter)}
            theme={theme}
          />
        ))}
      </tbody>
    </table>
  );
}

function Run(props: {
  one: ILettered & { run: IRun };
  isShown: boolean;
  turn: () => void;
  theme: ITheme;
}): JSX.Element {
  const { one, isShown, turn, theme } = props;
  const { letter, place, run, series } = one;
  const { newest, jobs } = run;
  const { whole, mfu, missing } = newest.numbers;
  return (
    <tr>
      <td>
        <button
          className="btn mnt-letter"
          aria-pressed={isShown}
          aria-label={trans.__('Show %1, %2', letter, newest.name)}
          onClick={turn}
        >
          {letter}
        </button>
      </td>
      <td>
        <svg width="28" height="10" aria-hidden="true">
          <path
            d="M0 5H28"
            stroke={theme.ranks[place]}
            strokeWidth={2.25}
            strokeDasharray={DASHES[place].join(' ')}
          />
        </svg>
      </td>
      <th scope="row">
        <span className="b">{newest.name}</span>{' '}
        <span className="m s nw">
          <Icon name={newest.state} size={12} /> {stateWord(newest.state)}
        </span>
      </th>
      <td className="mnt-right">{stepText(jobs)}</td>
      <td className="mnt-right">{formats.loss(series.bestEvaluation)}</td>
      <td className="mnt-right">
        <Measured
          value={whole?.tokens_per_s}
          write={formats.rate}
          reason={missing?.tokens_per_s}
        />
      </td>
      <td className="mnt-right">
        <Measured value={mfu} write={formats.percent} reason={missing?.mfu} />
      </td>
      <td className="mnt-right">
        {formats.duration(durationOf(jobs, serverClock.now()))}
      </td>
    </tr>
  );
}
