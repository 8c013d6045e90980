import { isRecipe } from '../recipe';

it.each([
  ['[model]\npreset = "llama-tiny"\n[train] # short\nsteps = 5', true],
  ['model.preset = "llama-tiny"', true],
  ['evaluation = { prompts = ["x"] }', true],
  ['[evaluation]\nprompts = ["""\n[project]\nname = 1\n"""]', true],
  ['[evaluation]\nprompts = [\n  "[x]",\n  "y"\n]', true],
  ['[project]\nname = "x"', false],
  ['[model]\n[tool.ruff]\nline-length = 100', false],
  ['name = "x"\n[model]', false],
  ['# nothing\n', false],
  ['', false]
])('%j: %s', (text, expected) => {
  expect(isRecipe(text)).toBe(expected);
});
