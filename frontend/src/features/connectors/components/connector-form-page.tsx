import { Alert, Button, Card, Group, TextInput } from '@mantine/core'
import { IconAlertTriangle, IconCircleCheck } from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useNavigate, useParams } from 'react-router'

import { Page } from '@/components/page'
import { SchemaForm } from '@/components/schema-form/schema-form'
import { Empty, Loaded } from '@/components/states'
import { toastDone, toastFailed } from '@/components/toasts'
import {
  useConnector,
  useSaveConnector,
  useTestConnector,
  type ConnectorDraft,
} from '@/features/connectors/api/connectors'
import { Problem } from '@/lib/api/problem'
import { below } from '@/lib/error-paths'
import { useConnectorTypes, type ConnectorType } from '@/lib/queries/connectors'
import { useServerTexts } from '@/lib/texts'

export function ConnectorFormPage() {
  const { id, type } = useParams()
  const { t } = useTranslation()
  const text = useServerTexts()
  const types = useConnectorTypes()
  const saved = useConnector(id)
  const title = id ? t('connectors.editTitle', { name: saved.data?.name ?? '…' }) : t('connectors.newTitle')
  return (
    <Page title={title} purpose={t('connectors.purpose')}>
      <Loaded query={types}>
        {(known) => {
          const typeOf = (name: string | undefined) => known.find((candidate) => candidate.type === name)
          if (!id) {
            const chosen = typeOf(type)
            const draft = { name: '', type: type ?? '', connection: {} }
            return chosen ? <ConnectorForm type={chosen} draft={draft} /> : <Empty title={t('connectors.unknownType')} />
          }
          return (
            <Loaded query={saved}>
              {(connector) => {
                const own = typeOf(connector.type)
                return own ? (
                  <ConnectorForm
                    key={connector.id}
                    id={connector.id}
                    etag={connector.etag}
                    type={own}
                    draft={connector}
                    failure={connector.failure}
                  />
                ) : (
                  <Empty title={t('connectors.unknownType')} hint={text(connector.failure)} />
                )
              }}
            </Loaded>
          )
        }}
      </Loaded>
    </Page>
  )
}

interface ConnectorFormProps {
  id?: string
  etag?: string
  type: ConnectorType
  draft: ConnectorDraft
  /** Why the saved connector cannot be used. */
  failure?: string
}

function ConnectorForm(props: ConnectorFormProps) {
  const { id, type } = props
  const { t } = useTranslation()
  const navigate = useNavigate()
  const [draft, setDraft] = useState<ConnectorDraft>(props.draft)
  const [errors, setErrors] = useState<Record<string, string[]>>({})
  // The one that was read when editing began: what was saved meanwhile is not overwritten.
  const [etag] = useState(props.etag)
  const save = useSaveConnector(id, etag)
  const test = useTestConnector(id)
  const text = useServerTexts()
  // A type that is unavailable is the failure of its connectors too.
  const problem = props.failure || type.unavailable

  function failed(error: unknown) {
    setErrors(error instanceof Problem ? error.errors : {})
    if (!(error instanceof Problem) || !Object.keys(error.errors).length) toastFailed(error)
  }

  function submit() {
    test.reset()
    save.mutate(draft, {
      onSuccess: () => {
        toastDone(t('common.saved'))
        void navigate('/connectors')
      },
      onError: failed,
    })
  }

  return (
    <Card withBorder maw={760}>
      {problem && (
        <Alert color="red" title={t('connectors.failure')} icon={<IconAlertTriangle />} mb="md">
          {text(problem)}
        </Alert>
      )}
      <TextInput
        label={t('common.name')}
        required
        mb="md"
        value={draft.name}
        error={errors.name?.join(' ')}
        onChange={({ currentTarget: { value: name } }) => setDraft((before) => ({ ...before, name }))}
      />
      <SchemaForm
        id="connection"
        schema={type.connection_schema}
        value={draft.connection}
        onChange={(connection) => setDraft((before) => ({ ...before, connection }))}
        onSubmit={submit}
        errors={below(errors, 'connection')}
      >
        {test.data && (
          <Alert color="green" icon={<IconCircleCheck />} mt="md" role="status">
            {text(test.data.detail)}
          </Alert>
        )}
        <Group justify="flex-end" mt="lg">
          <Button
            variant="default"
            loading={test.isPending}
            onClick={() => {
              setErrors({})
              test.mutate(draft, { onError: failed })
            }}
          >
            {t('connectors.test')}
          </Button>
          <Button type="submit" loading={save.isPending}>
            {t('common.save')}
          </Button>
        </Group>
      </SchemaForm>
    </Card>
  )
}
