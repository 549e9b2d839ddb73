import { Alert, Anchor, Button, Card, Fieldset, Grid, Group, Stack, Text, TextInput, Title } from '@mantine/core'
import { IconAlertTriangle, IconCircleCheck } from '@tabler/icons-react'
import { Fragment, useMemo, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, useNavigate, useParams } from 'react-router'

import { useDraft } from '@/components/draft'
import { Page } from '@/components/page'
import { ProblemList } from '@/components/problem-list'
import { SchemaForm } from '@/components/schema-form'
import { Empty, Loaded } from '@/components/states'
import { toastDone, toastFailed } from '@/components/toasts'
import { useUnsaved } from '@/components/unsaved-guard'
import {
  pageOf,
  useConnector,
  useSaveConnector,
  useTestConnector,
  useUsers,
  type ConnectorDraft,
  type ConnectorUser,
} from '@/features/connectors/api/connectors'
import { Problem, type FieldErrors } from '@/lib/api/problem'
import { below } from '@/lib/error-paths'
import { focusOn } from '@/lib/focus'
import { titleAt } from '@/lib/json-schema'
import { useConnectorTypes, type ConnectorType } from '@/lib/queries/connectors'
import { useMay } from '@/lib/queries/session'
import { useServerTexts } from '@/lib/texts'

const nameId = 'connector-name'

export function ConnectorFormPage() {
  const { id, type } = useParams()
  const { t } = useTranslation()
  const text = useServerTexts()
  const types = useConnectorTypes()
  const saved = useConnector(id)
  const chosenTitle = types.data?.find((known) => known.type === type)?.title
  const newTitle = chosenTitle ? t('connectors.newOf', { type: text(chosenTitle) }) : t('connectors.newTitle')
  const title = id ? t('connectors.editTitle', { name: saved.data?.name ?? '…' }) : newTitle
  return (
    <Page title={title} purpose={t('connectors.formPurpose')}>
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
  const [isDirty, setDirty] = useState(false)
  const [errors, setErrors] = useState<FieldErrors>({})
  // The one that was read when editing began: what was saved meanwhile is not overwritten.
  const [etag] = useState(props.etag)
  const { name, connection } = draft
  const schema = useMemo(() => ({ ...type.connection_schema, properties: { connection: type.connection_schema } }), [type])
  const { offer, isKept, restored, forget } = useDraft({
    kind: 'connector',
    thing: id ?? `new ${type.type}`,
    base: etag,
    value: useMemo(() => ({ name, connection }), [name, connection]),
    isDirty,
    schema,
    onRestore: change,
  })
  const { guard, release } = useUnsaved(isDirty, isKept)
  const save = useSaveConnector(id, etag)
  const test = useTestConnector(id)
  const text = useServerTexts()
  const mayEdit = useMay('editor')
  // A type that is unavailable is the failure of its connectors too.
  const problem = props.failure || type.unavailable

  function change(changed: Partial<ConnectorDraft>) {
    setDraft((before) => ({ ...before, ...changed }))
    setDirty(true)
  }

  function failed(error: unknown) {
    const fields = error instanceof Problem ? error.errors : {}
    setErrors(fields)
    const [first] = Object.keys(fields)
    if (first === undefined) toastFailed(error)
    else jump(first)
  }

  const jump = (field: string) => focusOn(field === 'name' ? nameId : field.replaceAll('.', '_'))

  const titleOf = (field: string) => {
    return field === 'name' ? t('common.name') : titleAt(type.connection_schema, field.replace(/^connection\.?/, ''), text)
  }

  function submit() {
    test.reset()
    save.mutate(draft, {
      onSuccess: () => {
        toastDone(t('common.saved'))
        forget()
        release()
        void navigate('/connectors')
      },
      onError: failed,
    })
  }

  return (
    <Grid gap="lg">
      <Grid.Col span={{ base: 12, lg: 8 }}>
        <Card withBorder>
          {guard}
          {offer}
          <ProblemList errors={errors} onJump={jump} nameOf={titleOf} mb="md" />
          {problem && (
            <Alert color="red" title={t('connectors.failure')} icon={<IconAlertTriangle />} mb="md">
              {text(problem)}
            </Alert>
          )}
          <Fieldset variant="unstyled" disabled={!mayEdit}>
            <TextInput
              id={nameId}
              label={t('common.name')}
              required
              mb="md"
              value={draft.name}
              error={errors.name?.join(' ')}
              onChange={({ currentTarget: { value: name } }) => change({ name })}
            />
            <SchemaForm
              key={restored}
              id="connection"
              schema={type.connection_schema}
              value={draft.connection}
              onChange={(connection, isTyped) => (isTyped ? change({ connection }) : setDraft((before) => ({ ...before, connection })))}
              onSubmit={submit}
              errors={below(errors, 'connection')}
            >
              {test.data && (
                <Alert
                  color={test.data.doubtful ? 'yellow' : 'green'}
                  icon={test.data.doubtful ? <IconAlertTriangle /> : <IconCircleCheck />}
                  mt="md"
                  role="status"
                >
                  {text(test.data.detail)}
                </Alert>
              )}
              {mayEdit && (
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
              )}
            </SchemaForm>
          </Fieldset>
        </Card>
      </Grid.Col>
      <Grid.Col span={{ base: 12, lg: 4 }}>
        <About type={type} id={id} />
      </Grid.Col>
    </Grid>
  )
}

/** More names than these say nothing more. */
const usersShown = 8

/** What the system is, where its fields are explained, and what uses the connector. */
function About({ type, id }: { type: ConnectorType; id: string | undefined }) {
  const { t } = useTranslation()
  const text = useServerTexts()
  const users = useUsers(id)
  return (
    <Card withBorder>
      <Stack gap="sm">
        <Title order={2} size="h5">
          {t('connectors.aboutType')}
        </Title>
        <Text size="sm">
          {text(type.title)}. {text(type.description)}
        </Text>
        <Anchor size="sm" href={`/docs/connectors/${type.type}/`} target="_blank">
          {t('connectors.documentation')}
        </Anchor>
        {id && users.data && (
          <div>
            <Text size="sm" fw={600}>
              {t('connectors.usedBy')}
            </Text>
            <Text size="sm" c={users.data.length ? undefined : 'dimmed'}>
              {users.data.length ? <Users users={users.data.slice(0, usersShown)} /> : t('connectors.usedByNone')}
              {users.data.length > usersShown && ` ${t('connectors.usedByMore', { count: users.data.length - usersShown })}`}
            </Text>
          </div>
        )}
      </Stack>
    </Card>
  )
}

function Users({ users }: { users: ConnectorUser[] }) {
  return users.map((user, index) => {
    const page = pageOf(user)
    return (
      <Fragment key={user.id}>
        {index > 0 && ', '}
        {page ? (
          <Anchor component={Link} to={page}>
            {user.name}
          </Anchor>
        ) : (
          user.name
        )}
      </Fragment>
    )
  })
}
