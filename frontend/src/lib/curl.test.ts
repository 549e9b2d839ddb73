import { execFileSync } from 'node:child_process'

import { expect, test } from 'vitest'

import { curlOf } from './curl'

test('a shell reads exactly what was meant, quotes included', () => {
  const body = `{"name": "O'Brien", "price": "$5 \`x\`"}`
  const command = curlOf('http://127.0.0.1:8080/v1/pipelines/1/messages', 'hr_1', body).replace(/^curl/, `printf '%s\\n'`)
  expect(execFileSync('sh', ['-c', command], { encoding: 'utf8' }).trimEnd().split('\n')).toEqual([
    'http://127.0.0.1:8080/v1/pipelines/1/messages',
    '-H',
    'Authorization: Bearer hr_1',
    '-H',
    'Content-Type: application/json',
    '-d',
    body,
  ])
})
