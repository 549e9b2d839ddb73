import { Accordion, Box, Button, Card, Group, Stack, Text } from '@mantine/core'
import {
  buttonId,
  canExpand,
  descriptionId,
  getUiOptions,
  titleId,
  type ArrayFieldItemTemplateProps,
  type ArrayFieldTemplateProps,
  type DescriptionFieldProps,
  type IconButtonProps,
  type MultiSchemaFieldTemplateProps,
  type ObjectFieldTemplatePropertyType,
  type ObjectFieldTemplateProps,
  type TitleFieldProps,
} from '@rjsf/utils'
import { IconPlus } from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { OwnErrors } from './own-errors'
import { isVariant } from './prepare-schema'

/** An object's fields one below the other; those marked `advanced` are folded. Named entries can be added. */
function ObjectFieldTemplate(props: ObjectFieldTemplateProps) {
  const { title, description, schema, uiSchema, registry, fieldPathId, required } = props
  const { t } = useTranslation()
  const isAdvanced = ({ name }: ObjectFieldTemplatePropertyType) => {
    const property = schema.properties?.[name]
    return typeof property === 'object' && (property as { advanced?: boolean }).advanced === true
  }
  const shown = props.properties.filter((property) => !property.hidden)
  const advanced = shown.filter(isAdvanced)
  // What has to be corrected is not hidden.
  const hasError = advanced.some(({ name }) => Object.keys(props.errorSchema?.[name] ?? {}).length > 0)
  const [isOpen, setOpen] = useState(false)
  const isPart = fieldPathId.path.length > 0 && title.trim() !== ''
  return (
    <Stack id={fieldPathId.$id} gap="sm">
      <TitleFieldTemplate id={titleId(fieldPathId)} title={title} {...{ schema, uiSchema, registry, required }} />
      <DescriptionFieldTemplate
        id={descriptionId(fieldPathId)}
        description={description === `${title}.` ? '' : (description ?? '')}
        {...{ schema, uiSchema, registry }}
      />
      {shown
        .filter((property) => !isAdvanced(property))
        .map((property) => (
          <div key={property.name}>{property.content}</div>
        ))}
      {canExpand(schema, uiSchema, props.formData) && (
        <Group>
          <AddButton id={buttonId(fieldPathId, 'add')} onClick={props.onAddProperty} registry={registry} />
        </Group>
      )}
      {advanced.length > 0 && (
        <Accordion
          variant="contained"
          chevronPosition="left"
          value={isOpen || hasError ? 'advanced' : null}
          onChange={(opened) => setOpen(opened !== null)}
        >
          <Accordion.Item value="advanced">
            <Accordion.Control>{isPart ? t('form.advancedOf', { title }) : t('form.advanced')}</Accordion.Control>
            <Accordion.Panel>
              <Stack gap="sm">
                {advanced.map((property) => (
                  <div key={property.name}>{property.content}</div>
                ))}
              </Stack>
            </Accordion.Panel>
          </Accordion.Item>
        </Accordion>
      )}
    </Stack>
  )
}

/** The name of a chosen variant stands in the selection above it already. */
function TitleFieldTemplate({ id, title, schema }: TitleFieldProps) {
  if (!title.trim() || isVariant(schema)) return null
  return (
    <Text id={id} fw={600} size="sm">
      {title}
    </Text>
  )
}

function DescriptionFieldTemplate({ id, description }: DescriptionFieldProps) {
  if (!description) return null
  return (
    <Text id={id} size="xs" c="dimmed" mt={-6}>
      {description}
    </Text>
  )
}

/** A list as a group of fields: its elements one below the other, and a button for a further one. */
function ArrayFieldTemplate(props: ArrayFieldTemplateProps) {
  const { title, schema, uiSchema, registry, fieldPathId, required, items, canAdd, disabled, readonly, onAddClick } = props
  const options = getUiOptions(uiSchema)
  const common = { schema, uiSchema, registry }
  return (
    <Stack id={fieldPathId.$id} gap="xs" role="group" aria-labelledby={titleId(fieldPathId)}>
      <TitleFieldTemplate id={titleId(fieldPathId)} title={options.title ?? title} required={required} {...common} />
      <DescriptionFieldTemplate
        id={descriptionId(fieldPathId)}
        description={options.description ?? schema.description ?? ''}
        {...common}
      />
      <OwnErrors errors={props.rawErrors} />
      {items}
      {canAdd && (
        <Group>
          <AddButton id={buttonId(fieldPathId, 'add')} disabled={disabled || readonly} onClick={onAddClick} registry={registry} />
        </Group>
      )}
    </Stack>
  )
}

/** An element of a list. Its buttons stand beside a single field, and in the corner of a group, which needs the room. */
function ArrayFieldItemTemplate(props: ArrayFieldItemTemplateProps) {
  const { buttonsProps, hasToolbar, registry, children, schema } = props
  const { ArrayFieldItemButtonsTemplate: Buttons } = registry.templates
  const isGroup = ['properties', 'oneOf', 'anyOf', '$ref'].some((keyword) => keyword in schema)
  const toolbar = hasToolbar && (
    <Group wrap="nowrap" gap={2}>
      <Buttons {...buttonsProps} />
    </Group>
  )
  if (isGroup) {
    return (
      <Card withBorder padding="sm">
        {children}
        <Box pos="absolute" top={4} right={4}>
          {toolbar}
        </Box>
      </Card>
    )
  }
  return (
    <Group align="flex-start" wrap="nowrap" gap="sm">
      <div style={{ flex: 1, minWidth: 0 }}>{children}</div>
      {toolbar}
    </Group>
  )
}

function MultiSchemaFieldTemplate({ selector, optionSchemaField }: MultiSchemaFieldTemplateProps) {
  return (
    <Stack gap="xs">
      {selector}
      {optionSchemaField}
    </Stack>
  )
}

function AddButton({ id, disabled, onClick }: IconButtonProps) {
  const { t } = useTranslation()
  return (
    <Button id={id} variant="default" size="xs" leftSection={<IconPlus size={14} />} disabled={disabled} onClick={onClick}>
      {t('form.add')}
    </Button>
  )
}

export const templates = {
  ObjectFieldTemplate,
  TitleFieldTemplate,
  DescriptionFieldTemplate,
  ArrayFieldTemplate,
  ArrayFieldItemTemplate,
  MultiSchemaFieldTemplate,
  ButtonTemplates: { AddButton },
}
