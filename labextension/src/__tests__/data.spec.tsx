import { render, screen } from '@testing-library/react';
import * as React from 'react';

import { DataFold } from '../liveview/data';
import type { DataPreview, ShownSequence } from '../schema';

const CHAT: ShownSequence = {
  tokens: 1200,
  padding: 30,
  learned: 4,
  documents: 2,
  runs: [
    { kind: 'begun' },
    { kind: 'special', text: '<s>' },
    { kind: 'text', text: 'Who?\n' },
    { kind: 'left-out', tokens: 1100 },
    { kind: 'text', text: 'I <b>am</b> ', is_learned: true },
    { kind: 'left-out', tokens: 50, is_learned: true },
    { kind: 'special', text: '</s>', is_learned: true },
    { kind: 'end' },
    { kind: 'left-out', tokens: 70, documents: 5 },
    { kind: 'cut' }
  ]
};

describe('the data of a job', () => {
  const shown = (data: Partial<DataPreview>) =>
    render(<DataFold data={{ summary: ['a file'], count: 14021, ...data }} />)
      .container;

  it('is folded, and says what became of it', () => {
    const fold = shown({}).querySelector('details')!;
    expect(fold.open).toBe(false);
    expect(fold.textContent).toBe('Dataa file');
  });

  it('has its first sequences, with what is learned and special marked', () => {
    shown({ sequences: [CHAT] });
    const one = screen.getByRole('article', { name: 'Sequence 1' });
    expect(one.querySelector('h5')!.textContent).toBe(
      'Sequence 1: 2 documents, 1,200 tokens, 30 of padding, 4 learned'
    );
    const marked = (name: string) =>
      [...one.querySelectorAll(name)].map(node => node.textContent);
    expect(marked('mark')).toEqual(['I <b>am</b> ', ' … 50 tokens … ', '</s>']);
    expect(marked('code')).toEqual(['<s>', '</s>']);
    expect(marked('.mnt-between')).toEqual([
      'it began in another sequence',
      'end of the document',
      '5 documents, 70 tokens',
      'cut: it continues in another sequence'
    ]);
    expect(one.querySelector('.mnt-sequence')!.textContent).toContain(
      'Who?\n … 1,100 tokens … I <b>am</b>'
    );
    expect(one.querySelector('b')).toBeNull();
  });

  it('is not marked where all of it is learned', () => {
    const { runs } = CHAT;
    shown({ sequences: [{ ...CHAT, documents: 1, learned: 1200, runs }] });
    const one = screen.getByRole('article', { name: 'Sequence 1' });
    expect(one.textContent).toContain('1 document, 1,200 tokens');
    expect(one.textContent).toContain('all learned');
    expect(one.querySelector('mark')).toBeNull();
  });
});
