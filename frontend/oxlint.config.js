import { readdirSync } from 'node:fs'

/**
 * The layers, each with the folders that its files may import. A feature imports itself and no other feature: what several
 * need is in components or lib, and a page made of several features is composed in app. What is imported of another folder
 * is named from the root, so that its layer is seen. `src/architecture.test.ts` proves that this finds what it forbids.
 */
const layers = {
  app: ['app', 'features', 'components', 'lib', 'locales'],
  features: ['components', 'lib'],
  components: ['components', 'lib'],
  lib: ['lib', 'locales'],
  locales: ['locales'],
}

const features = readdirSync(new URL('src/features', import.meta.url)).map((name) => `features/${name}`)

/** Imports by a path that leads upward, and of all but these folders. */
const restricted = (folders) => {
  const group = ['../**', '@/**', ...folders.map((folder) => `!@/${folder}/**`)]
  return ['error', { patterns: [{ group, message: 'See oxlint.config.js for the layers.' }] }]
}

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
    'no-useless-assignment': 'error',
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
  overrides: [...Object.entries(layers), ...features.map((feature) => [feature, [feature, ...layers.features]])].map(
    ([folder, imported]) => ({
      files: [`src/${folder}/**`],
      rules: { 'no-restricted-imports': restricted(imported) },
    }),
  ),
}
