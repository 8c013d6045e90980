/** Letters of compared runs: at most four, as many as there are distinct colors and dashes. */

export const LETTERS = ['A', 'B', 'C', 'D'] as const;
