import { Input } from '@mantine/core'

/** Errors of an object or list itself. Those of single values are shown by their inputs, a variant's by its selection. */
export function OwnErrors({ errors }: { errors: string[] | undefined }) {
  return errors?.length ? <Input.Error>{errors.join(' ')}</Input.Error> : null
}
