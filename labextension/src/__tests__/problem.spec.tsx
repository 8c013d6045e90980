import { cleanup, render, screen } from '@testing-library/react';
import * as React from 'react';

import { causeLine, fixLine, ProblemLines, problemText } from '../problem';
import { problemOf, RequestError } from '../tokens';

const PROBLEM = {
  cause: 'CUDA out of memory',
  fix: 'lower train.batch_size',
  node: 'muthur',
  rank: 1
};

afterEach(cleanup);

describe('a problem', () => {
  it('is where and what, then what to do', () => {
    expect(causeLine(PROBLEM)).toBe('muthur: rank 1: CUDA out of memory');
    expect(fixLine(PROBLEM)).toBe('Fix: lower train.batch_size');
    expect(problemText(PROBLEM)).toBe(
      'muthur: rank 1: CUDA out of memory. Fix: lower train.batch_size'
    );
  });

  it('of rank 0 names it', () => {
    expect(causeLine({ cause: 'killed', rank: 0 })).toBe('rank 0: killed');
  });

  it('without a fix has none', () => {
    const problem = { cause: 'killed by SIGKILL', fix: '' };
    expect(problemText(problem)).toBe('killed by SIGKILL');
    const { container } = render(<ProblemLines problem={problem} />);
    expect(container.querySelectorAll('p')).toHaveLength(1);
  });

  it('has one line for the cause and one for the fix', () => {
    render(<ProblemLines problem={PROBLEM} />);
    expect(screen.getAllByText(/Fix:/)).toHaveLength(1);
  });

  it('is told by what was thrown', () => {
    expect(problemOf(new RequestError(PROBLEM, 409))).toBe(PROBLEM);
    expect(problemOf(new Error('no such file'))).toEqual({
      cause: 'no such file'
    });
  });
});
