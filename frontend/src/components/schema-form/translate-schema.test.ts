import { expect, test } from 'vitest'

import { translateSchema } from './translate-schema'

const texts: Record<string, string> = { Title: 'Título', Value: 'Valor', 'What it holds.': 'O que contém.', drop: 'descartar', Poll: 'Consulta' }
const t = (text: string) => texts[text] ?? text

test('titles and descriptions are translated at every depth, and unknown ones stay', () => {
  const schema = {
    title: 'Title',
    properties: { value: { title: 'Value', description: 'What it holds.' }, other: { title: 'Unknown' } },
    $defs: { Poll: { title: 'Poll', items: { anyOf: [{ title: 'Value' }] } } },
  }
  expect(translateSchema(schema as never, t)).toEqual({
    title: 'Título',
    properties: { value: { title: 'Valor', description: 'O que contém.' }, other: { title: 'Unknown' } },
    $defs: { Poll: { title: 'Consulta', items: { anyOf: [{ title: 'Valor' }] } } },
  })
})

test('the choices of oneOf are translated by their titles, their constants kept', () => {
  const schema = { oneOf: [{ const: 'drop', title: 'Poll' }] }
  expect(translateSchema(schema as never, t)).toEqual({ oneOf: [{ const: 'drop', title: 'Consulta' }] })
})

test('values of an enumeration stay and get names, where they are no words or one has a translation', () => {
  expect(translateSchema({ enum: ['dead_letter', 'csv'] }, t)).toEqual({
    enum: ['dead_letter', 'csv'],
    enumNames: ['dead letter', 'csv'],
  })
  expect(translateSchema({ enum: ['drop', 'csv'] }, t)).toEqual({ enum: ['drop', 'csv'], enumNames: ['descartar', 'csv'] })
  expect(translateSchema({ enum: ['csv'] }, t)).toEqual({ enum: ['csv'] })
})

test('values are no texts of the schema, and a property may have the name of a keyword', () => {
  const schema = {
    default: { title: 'Title' },
    examples: [{ title: 'Title' }],
    properties: { title: { title: 'Title' }, examples: { title: 'Title' }, enum: { title: 'Title' } },
  }
  expect(translateSchema(schema as never, t)).toEqual({
    default: { title: 'Title' },
    examples: [{ title: 'Title' }],
    properties: { title: { title: 'Título' }, examples: { title: 'Título' }, enum: { title: 'Título' } },
  })
})
