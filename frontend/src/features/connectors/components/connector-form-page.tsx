import { Alert, Button, Card, Group, TextInput } from '@mantine/core'
import { IconCircleCheck } from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useNavigate, useParams } from 'react-router'

import { Page } from '@/components/page'
import { SchemaForm } from '@/components/schema-form/schema-form'
import { Loaded } from '@/components/states'
import { toastDone, toastFailed } from '@/components/toasts'
import {
  useConnector,
  useConnectorTypes,
  useSaveConnector,
  useTestConnector,
  type ConnectorDraft,
  type ConnectorType,
} from '@/features/connectors/api/connectors'
import { Problem } from '@/lib/api/problem'
import { below } from '@/lib/error-paths'

export function ConnectorFormPage() {
  const { id, type } = useParams()
  const { t } = useTranslation()
  const types = useConnectorTypes()
  const saved = useConnector(id)
  const title = id ? t('connectors.editTitle', { name: saved.data?.name ?? '…' }) : t('connectors.newTitle')
  return (
    <Page title={title} purpose={t('connectors.purpose')}>
      <Loaded query={types}>
        {(found) => {
          const chosen = (of: string | undefined) => found.find((candidate) => candidate.type === of)
          if (!id) {
            const wanted = chosen(type)
            return wanted && <ConnectorForm type={wanted} draft={{ name: '', type: wanted.type, connection: {} }} />
          }
          return (
            <Loaded query={saved}>
              {(connector) => {
                const wanted = chosen(connector.type)
                return wanted && (
                  <ConnectorForm key={connector.id} id={connector.id} etag={connector.etag} type={wanted} draft={connector} />
                )
              }}
            </Loaded>
          )
        }}
      </Loaded>
    </Page>
  )
}

function ConnectorForm(props: { id?: string; etag?: string; type: ConnectorType; draft: ConnectorDraft }) {
  const { id, type } = props
  const { t } = useTranslation()
  const navigate = useNavigate()
  const [draft, setDraft] = useState<ConnectorDraft>(props.draft)
  const [errors, setErrors] = useState<Record<string, string[]>>({})
  // The one that was read when editing began: what was saved meanwhile is not overwritten.
  const [etag] = useState(props.etag)
  const save = useSaveConnector(id, etag)
  const test = useTestConnector(id)

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
            {test.data.detail}
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
