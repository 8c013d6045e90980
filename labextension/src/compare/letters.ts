/** Letters of compared runs: four at most, as there are colors and dashes to tell them apart. */

export const LETTERS = ['A', 'B', 'C', 'D'] as const;
