/** Terms: what the words of the page mean, as docs/glossary.md says it. */

import * as React from 'react';

import { trans } from './trans';

/** Words of the glossary that the page uses. */
export type TermName = keyof ReturnType<typeof meanings>;

/** The same sentences as in docs/glossary.md: a test compares them. */
export function meanings() {
  return {
    node: trans.__(
      'a machine that runs an agent. Its node id stays the same across restarts and address changes'
    ),
    stage: trans.__(
      'consecutive layers that one rank computes. A rank has several in interleaved schedules'
    ),
    'step time': trans.__(
      'seconds per optimizer step, the median of the recent steps, without what stands between two steps'
    ),
    'time left': trans.__(
      'seconds until the last step, with the evaluations, samples, saves and long steps that are still to come if they recur as they did, and the range in which it is in 19 of 20 cases. n/a before it is known to a quarter of itself'
    ),
    throughput: trans.__(
      'tokens per second of the whole job, tok/s: tokens of the recent steps, those of all replicas, over the wall time that they took. In a rank’s row: the same tokens, of an ended job those of its last attempt, over the time that this rank took for them. Padding counts where the script’s own numbers count it. n/a while a rank reports nothing: it may be a replica with tokens of its own'
    ),
    pace: trans.__(
      'tokens of the recent steps, those of all replicas, over the time one rank computes, without the optimizer: the throughput of the job if this rank never waited. The slowest pace is the bottleneck'
    ),
    MFU: trans.__(
      'model FLOPs utilization: model FLOPs per second (6N + 12·L·H·Q·T per token, PaLM appendix B, with T no longer than the window that a layer sees) over the peak FLOPs per second of the devices used; of a rank, of its own stages over its own device’s'
    ),
    computing: trans.__(
      'the share of a step in forward, backward and the optimizer'
    ),
    bubble: trans.__(
      'the share of a step in which ranks run neither forward nor backward, measured: not computing, and the optimizer'
    ),
    'link utilization': trans.__(
      'bytes per second, of all programs, over the capacity of that direction. 100 % is what the interface counted while a probe filled the link. What a node receives is divided by what its peers can send to it. busiest link: the fullest one of the job'
    ),
    capacity: trans.__(
      'bytes per second that a link carried when it was measured, or that the user gave, counted as the interface counts them: with headers. The share that is payload is kept with it. Kept by the sender per receiver and interface, with its time and condition. If the counters show more for 3 s or longer, the highest rate seen takes its place, marked best seen. Marked slower now while messages of the job take at least twice as long as it says'
    ),
    loss: trans.__(
      'mean cross-entropy per token of a step’s batch, as the script reports it; where ranks report different ones, the mean of theirs; of an evaluation, on text that is not trained on'
    ),
    waiting: trans.__(
      'the part of a step that is neither computing, encoding, sending nor the schedule’s own bubble'
    ),
    checkpoint: trans.__(
      'the state from which training can resume: weights, optimizer, position in the data'
    )
  };
}

/** A word with its meaning as a tooltip. */
export function Term(props: {
  of: TermName;
  children?: React.ReactNode;
}): JSX.Element {
  return (
    <span className="mnt-term" title={meanings()[props.of]}>
      {props.children ?? props.of}
    </span>
  );
}
