const jestJupyterLab = require('@jupyterlab/testutils/lib/jest-config');

const esModules = [
  '@codemirror',
  '@jupyter',
  '@jupyterlab/',
  '@microsoft',
  '@rjsf',
  'exenv-es6',
  'lib0',
  'nanoid',
  'uplot',
  'vscode-ws-jsonrpc',
  'y-protocols',
  'y-websocket',
  'yjs'
].join('|');

const baseConfig = jestJupyterLab(__dirname);

module.exports = {
  ...baseConfig,
  automock: false,
  collectCoverageFrom: ['src/**/*.{ts,tsx}', '!src/**/*.d.ts'],
  modulePathIgnorePatterns: ['<rootDir>/lib', '<rootDir>/ui-tests'],
  testRegex:
    'src/.*/__tests__/.*\\.spec\\.tsx?$|src/__tests__/.*\\.spec\\.tsx?$',
  // File by file and without types: `jlpm lint:check` checks those, of all files at once.
  transform: {
    '\\.svg$': baseConfig.transform['\\.svg$'],
    '^.+\\.[jt]sx?$': [
      '@swc/jest',
      {
        jsc: {
          parser: { syntax: 'typescript', tsx: true, decorators: true },
          target: 'es2022'
        },
        sourceMaps: 'inline'
      }
    ]
  },
  transformIgnorePatterns: [`/node_modules/(?!${esModules}).+`]
};
