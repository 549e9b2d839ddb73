// @vitest-environment node
import { ESLint } from 'eslint'
import { expect, test } from 'vitest'

const eslint = new ESLint()

/** The rules that a file of the project would break if it held this. */
async function broken(path: string, text: string): Promise<string[]> {
  const [result] = await eslint.lintText(text, { filePath: path })
  const rules = result?.messages.map(({ ruleId }) => ruleId ?? '') ?? []
  return rules.filter((rule) => /^(boundaries|import-x)\//.test(rule))
}

test(
  'imports that lead upward, sideways or in a circle are found',
  async () => {
    const feature = 'src/features/alerts/api/alerts.ts'
    expect(await broken(feature, "import '@/features/jobs/api/jobs'")).toEqual(['boundaries/dependencies'])
    expect(await broken(feature, "import '../../jobs/api/jobs'")).toEqual(['boundaries/dependencies'])
    expect(await broken(feature, "import '@/app/theme'")).toEqual(['boundaries/dependencies'])
    expect(await broken('src/components/time.tsx', "import '@/features/jobs/api/jobs'")).toEqual(['boundaries/dependencies'])
    expect(await broken('src/lib/format.ts', "import '@/components/figure'")).toEqual(['boundaries/dependencies'])
    // The client imports problem.ts already.
    expect(await broken('src/lib/api/problem.ts', "import { api } from '@/lib/api/client'; void api")).toEqual(['import-x/no-cycle'])
  },
  300_000,
)

test(
  'imports that lead downward or stay within a feature are allowed',
  async () => {
    const text = ['@/components/figure', '@/lib/format', '@/features/alerts/api/alerts'].map((path) => `import '${path}'`)
    expect(await broken('src/features/alerts/components/alerts-page.tsx', text.join('\n'))).toEqual([])
    expect(await broken('src/app/theme.ts', "import '@/features/jobs/api/jobs'")).toEqual([])
  },
  300_000,
)
