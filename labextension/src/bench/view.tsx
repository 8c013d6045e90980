/** The collective benchmark as a tab: how fast training messages are between nodes. */

import { ReactWidget } from '@jupyterlab/apputils';
import * as React from 'react';

import { Alert } from '../alert';
import { serverClock } from '../clock';
import { Bar, Button } from '../controls';
import * as formats from '../formats';
import { Icon } from '../icons';
import { type IProblem, ProblemLines } from '../problem';
import type { BenchReport, BenchState } from '../schema';
import { type IClusterModel, problemOf } from '../tokens';
import { trans } from '../trans';
import { BenchChart, Stroke } from './chart';
import {
  OPERATIONS,
  operationName,
  sizesOf,
  sizeText,
  transport
} from './words';

/** With more pairs, only the slowest are listed. */
const MOST_PAIRS = 20;

export interface IBenchProps {
  model: IClusterModel;
  /** Names; empty = all. */
  nodes: string[];
}

export function benchWidget(props: IBenchProps): ReactWidget {
  const widget = ReactWidget.create(<BenchView {...props} />);
  widget.addClass('mnt-bench-widget');
  return widget;
}

/** The state of a benchmark, its refusal, and functions to start and cancel it. */
function useBench({ model, nodes }: IBenchProps) {
  const [state, setState] = React.useState<BenchState>({});
  const [refusal, setRefusal] = React.useState<IProblem | null>(null);
  const isShown = React.useRef(true);
  /** Poll until none runs: the server answers after a moment; the benchmark needs no poll. */
  const follow = async (ask: () => Promise<BenchState>) => {
    setRefusal(null);
    try {
      let now = await ask();
      setState(now);
      while (now.is_running && isShown.current) {
        now = await model.api.benchState();
        setState(now);
      }
    } catch (error) {
      setState(before => ({ ...before, is_running: false }));
      setRefusal(problemOf(error));
    }
  };
  React.useEffect(() => {
    isShown.current = true;
    void follow(() => model.api.benchState());
    return () => void (isShown.current = false);
  }, [model]);
  const begin = () => follow(() => model.api.beginBench(nodes));
  // Who follows it already shows the end.
  const cancel = async () => {
    try {
      setState(await model.api.cancelBench());
    } catch (error) {
      setRefusal(problemOf(error));
    }
  };
  return { state, refusal, begin, cancel };
}

export function BenchView(props: IBenchProps): JSX.Element {
  const { state, refusal, begin, cancel } = useBench(props);
  const { is_running: isRunning = false, doing, done = 0, total } = state;
  const { report } = state;
  const problem = refusal ?? (isRunning ? null : state.problem);
  return (
    <div className="mnt mnt-bench">
      <div className="mnt-controls">
        <h2 className="mnt-head-name">{trans.__('Collectives')}</h2>
        <span className="m s" role="status">
          {isRunning
            ? doing || trans.__('Starting…')
            : report && age(report.time_s)}
        </span>
        <span className="sp" />
        {isRunning && (
          <Button
            label={trans.__('Cancel')}
            title={trans.__('End the benchmark, and delete its job')}
            run={cancel}
          />
        )}
        <Button
          label={report ? trans.__('Run again') : trans.__('Run benchmark')}
          title={trans.__('A job of about a minute, deleted afterwards')}
          isOff={isRunning}
          run={begin}
        />
      </div>
      {isRunning && total ? (
        <Bar role="progressbar" share={done / total} label={doing ?? ''} />
      ) : null}
      {problem && <Alert problem={problem} />}
      {report ? (
        <Report report={report} />
      ) : (
        <p className="m">
          {trans.__(
            'How fast all-reduce, all-gather and messages are between nodes, as training sends them. Not measured from here yet.'
          )}
        </p>
      )}
    </div>
  );
}

function age(begun: number): string {
  const seconds = Math.max(0, serverClock.now() - begun);
  return trans.__('measured %1 ago', formats.duration(seconds));
}

function Report({ report }: { report: BenchReport }): JSX.Element {
  const { nodes, problems = [], line_bytes_per_s: line } = report;
  return (
    <>
      <p className="m s">{[nodes.join(', '), transport(report)].join('; ')}</p>
      {problems.map((problem, i) => (
        <ProblemLines key={i} problem={problem}>
          <Icon name="warning" size={12} />
        </ProblemLines>
      ))}
      <BenchChart report={report} />
      <Operations report={report} />
      <p className="m s">
        {typeof line === 'number' ? (
          <>
            <Stroke />{' '}
            {trans.__(
              'line rate: %1, what the slowest link was measured to carry',
              formats.bitRate(line)
            )}
          </>
        ) : (
          trans.__('No line rate: %1', report.unmeasured || formats.ABSENT)
        )}
      </p>
      <details>
        <summary>{trans.__('Message sizes')}</summary>
        <Sizes report={report} />
      </details>
      <Pairs report={report} />
    </>
  );
}

function Pairs({ report }: { report: BenchReport }): JSX.Element | null {
  const { pairs = [] } = report;
  const slowest = [...pairs].sort(
    (one, other) => one.bytes_per_s - other.bytes_per_s
  );
  return pairs.length ? (
    <details>
      <summary>
        {pairs.length > MOST_PAIRS
          ? trans.__('The slowest %1 of %2 pairs', MOST_PAIRS, pairs.length)
          : trans.__('Pairs, slowest first')}
      </summary>
      <Table
        label={trans.__('Pairs')}
        heads={[
          trans.__('from, to'),
          trans.__('reaches'),
          trans.__('of its link'),
          trans.__('latency')
        ]}
        rows={slowest
          .slice(0, MOST_PAIRS)
          .map(one => [
            one.sender_node === one.receiver_node
              ? trans.__('rank %1 → rank %2', one.sender, one.receiver)
              : `${one.sender_node} → ${one.receiver_node}`,
            formats.bitRate(one.bytes_per_s),
            formats.percent(share(one.bytes_per_s, one.line_bytes_per_s)),
            formats.latency(one.latency_s)
          ])}
      />
    </details>
  ) : null;
}

function share(rate: number, line: formats.Maybe): formats.Maybe {
  return line ? rate / line : null;
}

/** Bus bandwidth of the largest message, and latency of the smallest. */
function Operations({ report }: { report: BenchReport }): JSX.Element {
  const ends = (report.pairs ?? []).map(one => one.latency_s);
  return (
    <Table
      label={trans.__('Operations')}
      heads={[
        trans.__('operation'),
        trans.__('bus bandwidth'),
        trans.__('of line rate'),
        trans.__('latency')
      ]}
      rows={OPERATIONS.flatMap(operation => {
        const sizes = sizesOf(report, operation);
        const last = sizes[sizes.length - 1];
        const isSend = operation === 'send' && ends.length > 0;
        return last
          ? [
              [
                <>
                  <Stroke operation={operation} /> {operationName(operation)},{' '}
                  {sizeText(last.size_bytes)}
                </>,
                formats.bitRate(last.bus_bytes_per_s),
                formats.percent(last.line_share),
                formats.latency(isSend ? Math.max(...ends) : sizes[0].seconds)
              ]
            ]
          : [];
      })}
    />
  );
}

function Sizes({ report }: { report: BenchReport }): JSX.Element {
  const shown = OPERATIONS.filter(one => sizesOf(report, one).length);
  const all = new Set((report.sizes ?? []).map(one => one.size_bytes));
  return (
    <Table
      label={trans.__('Message sizes')}
      heads={[trans.__('size'), ...shown.map(operationName)]}
      rows={[...all]
        .sort((one, other) => one - other)
        .map(size => [
          sizeText(size),
          ...shown.map(operation =>
            formats.bitRate(
              sizesOf(report, operation).find(one => one.size_bytes === size)
                ?.bus_bytes_per_s
            )
          )
        ])}
    />
  );
}

/** In narrow places, each cell is a line that begins with its column's name. */
function Table(props: {
  label: string;
  heads: string[];
  rows: React.ReactNode[][];
}): JSX.Element {
  const { label, heads, rows } = props;
  return (
    <table className="mnt-bench-table" aria-label={label}>
      <thead>
        <tr>
          {heads.map(head => (
            <th key={head} scope="col">
              {head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((cells, i) => (
          <tr key={i}>
            <th scope="row">{cells[0]}</th>
            {cells.slice(1).map((cell, column) => (
              <td key={column} data-head={heads[column + 1]}>
                {cell}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
