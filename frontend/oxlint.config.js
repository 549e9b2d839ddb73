import { readdirSync } from 'node:fs'

/**
 * The layers, each with those that it may not import. A feature imports no other feature: what several need is in
 * components or lib, and a page made of several features is composed in app. What is imported of another folder is
 * named from the root, so that its layer is seen. `src/architecture.test.ts` proves that this finds what it forbids.
 */
const above = {
  features: ['app', 'locales', 'features'],
  components: ['app', 'locales', 'features'],
  lib: ['app', 'features', 'components'],
}

const places = [
  ...Object.entries(above).map(([folder, layers]) => [folder, layers, []]),
  ...readdirSync(new URL('src/features', import.meta.url)).map((name) => [`features/${name}`, above.features, [`!@/features/${name}/**`]]),
]

const restricted = (...patterns) => ['error', { patterns: [{ group: ['../**', ...patterns], message: 'See oxlint.config.js for the layers.' }] }]

export default {
  plugins: ['typescript', 'react', 'import'],
  categories: { correctness: 'error' },
  options: { typeAware: true, typeCheck: true, reportUnusedDisableDirectives: 'error', denyWarnings: true },
  ignorePatterns: ['dist', 'src/lib/api/schema.d.ts'],
  rules: {
    'import/no-cycle': 'error',
    'no-array-constructor': 'error',
    'no-case-declarations': 'error',
    'no-empty': 'error',
    'no-fallthrough': 'error',
    'no-prototype-builtins': 'error',
    'no-regex-spaces': 'error',
    'no-unexpected-multiline': 'error',
    'no-var': 'error',
    'prefer-const': 'error',
    'prefer-rest-params': 'error',
    'prefer-spread': 'error',
    'preserve-caught-error': 'error',
    'react/rules-of-hooks': 'error',
    'react/unsupported-syntax': 'error',
    'typescript/ban-ts-comment': 'error',
    'typescript/no-empty-object-type': 'error',
    'typescript/no-explicit-any': 'error',
    'typescript/no-misused-promises': ['error', { checksVoidReturn: { attributes: false } }],
    'typescript/no-namespace': 'error',
    'typescript/no-require-imports': 'error',
    'typescript/no-unnecessary-type-assertion': 'error',
    'typescript/no-unnecessary-type-constraint': 'error',
    'typescript/no-unsafe-argument': 'error',
    'typescript/no-unsafe-assignment': 'error',
    'typescript/no-unsafe-call': 'error',
    'typescript/no-unsafe-enum-comparison': 'error',
    'typescript/no-unsafe-function-type': 'error',
    'typescript/no-unsafe-member-access': 'error',
    'typescript/no-unsafe-return': 'error',
    'typescript/only-throw-error': 'error',
    'typescript/prefer-promise-reject-errors': 'error',
    'typescript/require-await': 'error',
    'typescript/restrict-plus-operands': 'error',
  },
  overrides: [
    { files: ['src/**'], rules: { 'no-restricted-imports': restricted() } },
    ...places.map(([folder, layers, own]) => ({
      files: [`src/${folder}/**`],
      rules: { 'no-restricted-imports': restricted(...layers.map((layer) => `@/${layer}/**`), ...own) },
    })),
  ],
}
