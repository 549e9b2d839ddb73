import { beforeEach, expect, test, vi } from 'vitest'

import { mask, readDraft, removeDraft, withoutSecrets, writeDraft, type Draft } from './drafts'

const place = { user: 'ada', workspace: 'default', kind: 'connector', thing: '7' }
const day = 86_400_000
const form = { name: '', connection: {} }
const draft: Draft = { at: 1000 * day, base: 'v1', lacksSecrets: false, value: { name: 'CRM', connection: { url: 'http://crm' } } }

beforeEach(() => localStorage.clear())

test('a draft comes back for the same user, workspace and thing alone, until it is removed', () => {
  expect(writeDraft(localStorage, place, draft)).toBe(true)
  expect(readDraft(localStorage, place, draft.at + day, form)).toEqual(draft)
  for (const other of [{ user: 'bob' }, { workspace: 'other' }, { kind: 'pipeline' }, { thing: '8' }]) {
    expect(readDraft(localStorage, { ...place, ...other }, draft.at, form)).toBeUndefined()
  }
  removeDraft(localStorage, place)
  expect(readDraft(localStorage, place, draft.at, form)).toBeUndefined()
})

test('after 14 days a draft is not offered, and goes when another one is kept', () => {
  writeDraft(localStorage, place, draft)
  localStorage.setItem('views:/pipelines', '[]')
  expect(readDraft(localStorage, place, draft.at + 14 * day - 1, form)).toEqual(draft)
  expect(readDraft(localStorage, place, draft.at + 14 * day, form)).toBeUndefined()
  writeDraft(localStorage, { ...place, thing: '8' }, { ...draft, at: draft.at + 14 * day })
  expect(localStorage.length).toBe(2)
  expect(localStorage.getItem('views:/pipelines')).toBe('[]')
})

test.each(['{', 'null', '3', '{"at": 1}', JSON.stringify({ ...draft, value: 'text' }), JSON.stringify({ ...draft, value: { name: 'CRM', connection: null } })])(
  'what is no draft of the form is as none: %s',
  (text) => {
    writeDraft(localStorage, place, draft)
    localStorage.setItem(localStorage.key(0) ?? '', text)
    expect(readDraft(localStorage, place, draft.at, form)).toBeUndefined()
    expect(writeDraft(localStorage, place, draft)).toBe(true)
    expect(readDraft(localStorage, place, draft.at, form)).toEqual(draft)
  },
)

test('a full, broken or missing storage breaks nothing', () => {
  const refuse = vi.fn(() => {
    throw new DOMException('full', 'QuotaExceededError')
  })
  const full = { length: 0, key: vi.fn(), getItem: refuse, setItem: refuse, removeItem: refuse, clear: vi.fn() }
  for (const storage of [full, undefined]) {
    expect(writeDraft(storage, place, draft)).toBe(false)
    expect(readDraft(storage, place, draft.at, form)).toBeUndefined()
    expect(() => removeDraft(storage, place)).not.toThrow()
  }
})

const secret = { type: 'string', format: 'password', writeOnly: true }
const schema = {
  $defs: {
    Basic: { type: 'object', properties: { type: { const: 'basic' }, user: { type: 'string' }, password: secret } },
    Token: { type: 'object', properties: { type: { const: 'token' }, token: { anyOf: [secret, { type: 'null' }] } } },
    Node: { type: 'object', properties: { key: secret, inner: { anyOf: [{ $ref: '#/$defs/Node' }, { type: 'null' }] } } },
  },
  type: 'object',
  properties: {
    auth: { oneOf: [{ $ref: '#/$defs/Basic' }, { $ref: '#/$defs/Token' }] },
    servers: { type: 'array', items: { $ref: '#/$defs/Basic' } },
    keys: { type: 'array', items: secret },
    headers: { type: 'object', additionalProperties: secret },
    node: { allOf: [{ $ref: '#/$defs/Node' }] },
    bundle: { type: 'object', writeOnly: true },
    anything: {},
  },
} as never

test('secrets are left out at any depth and in any variant', () => {
  const typed = {
    auth: { type: 'basic', user: 'u', password: 's1', token: 's2' },
    servers: [{ user: 'v', password: 's3' }],
    keys: ['s4'],
    headers: { Authorization: 's5' },
    node: { inner: { inner: { key: 's6' } } },
    bundle: { a: 's7' },
    anything: [{ password: 'plain' }, null],
  }
  const { value, lacksSecrets } = withoutSecrets(typed, schema)
  expect(lacksSecrets).toBe(true)
  expect(value).toEqual({
    auth: { type: 'basic', user: 'u' },
    servers: [{ user: 'v' }],
    keys: [''],
    headers: { Authorization: '' },
    node: { inner: { inner: {} } },
    anything: [{ password: 'plain' }, null],
  })
  expect(JSON.stringify(value)).not.toMatch(/s\d/)
})

test('the mask of a stored secret stays, so that restoring keeps the secret', () => {
  const shown = { auth: { type: 'token', token: mask }, headers: { Authorization: mask, 'X-New': '' }, node: { key: null } }
  expect(withoutSecrets(shown, schema)).toEqual({ value: shown, lacksSecrets: false })
})
