import { Skeleton } from '@mantine/core'
import { lazy, Suspense, type ComponentProps } from 'react'

import type { SchemaForm as Loaded } from './schema-form'

const Form = lazy(async () => ({ default: (await import('./schema-form')).SchemaForm }))

/** A form made of a JSON Schema, whose library is loaded when the first one is shown. */
export function SchemaForm(props: ComponentProps<typeof Loaded>) {
  return (
    <Suspense fallback={<Skeleton height={320} />}>
      <Form {...props} />
    </Suspense>
  )
}
