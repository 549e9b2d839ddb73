import { Validator } from '@cfworker/json-schema'
import type { GenericObjectType, RJSFSchema, ValidatorType } from '@rjsf/utils'

import { toJson } from '@/lib/json'

/**
 * Only chooses between the variants of a field; the server validates. It interprets schemas,
 * since the Content-Security-Policy forbids validators that compile them to code.
 */
export const validator: ValidatorType<unknown, RJSFSchema, GenericObjectType> = {
  validateFormData: () => ({ errors: [], errorSchema: {} }),
  rawValidation: () => ({ errors: [] }),
  isValid: (schema: RJSFSchema, formData: unknown, rootSchema: RJSFSchema) => {
    const whole = { ...schema, $defs: { ...rootSchema.$defs, ...schema.$defs } }
    return new Validator(whole as ConstructorParameters<typeof Validator>[0], '2020-12').validate(asJson(formData)).valid
  },
  reset: () => undefined,
}

/** JSON knows no undefined, which the form has for a field that is not filled in yet. */
function asJson(value: unknown): unknown {
  return value === undefined ? null : (JSON.parse(toJson(value)) as unknown)
}
