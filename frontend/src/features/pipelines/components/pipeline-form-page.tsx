import { Button, Card, Group, TextInput } from '@mantine/core'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, useNavigate, useParams } from 'react-router'

import { Page } from '@/components/page'
import { Loaded } from '@/components/states'
import { toastDone, toastFailed } from '@/components/toasts'
import { usePipeline, useSavePipeline, type PipelineDraft } from '@/features/pipelines/api/pipelines'
import { ConfigForm } from '@/features/pipelines/components/config-form'
import { Problem } from '@/lib/api/problem'
import { below } from '@/lib/error-paths'

export function PipelineFormPage() {
  const { id } = useParams()
  const { t } = useTranslation()
  const query = usePipeline(id)
  const title = id ? t('pipelines.editTitle', { name: query.data?.name ?? '…' }) : t('pipelines.newTitle')
  return (
    <Page title={title} purpose={t('pipelines.editPurpose')}>
      {id ? (
        <Loaded query={query}>
          {(saved) => (
            <PipelineForm id={id} etag={saved.etag} draft={{ name: saved.name, config: { ...saved.config } }} />
          )}
        </Loaded>
      ) : (
        <PipelineForm draft={{ name: '', config: { outputs: [{}] } }} />
      )}
    </Page>
  )
}

function PipelineForm(props: { id?: string; etag?: string; draft: PipelineDraft }) {
  const { id } = props
  const { t } = useTranslation()
  const navigate = useNavigate()
  const [draft, setDraft] = useState(props.draft)
  const [errors, setErrors] = useState<Record<string, string[]>>({})
  // The one that was read when editing began: what was saved meanwhile is not overwritten.
  const [etag] = useState(props.etag)
  const save = useSavePipeline(id, etag)

  function submit() {
    save.mutate(draft, {
      onSuccess: (pipeline) => {
        toastDone(t('common.saved'))
        void navigate(`/pipelines/${pipeline.id}`)
      },
      onError: (error) => {
        setErrors(error instanceof Problem ? error.errors : {})
        if (!(error instanceof Problem) || !Object.keys(error.errors).length) toastFailed(error)
      },
    })
  }

  return (
    <Card withBorder maw={860}>
      <TextInput
        label={t('common.name')}
        required
        mb="md"
        value={draft.name}
        error={errors.name?.join(' ')}
        onChange={({ currentTarget: { value: name } }) => setDraft((before) => ({ ...before, name }))}
      />
      <ConfigForm
        pipeline={id}
        value={draft.config}
        onChange={(config) => setDraft((before) => ({ ...before, config }))}
        onSubmit={submit}
        errors={below(errors, 'config')}
      >
        <Group justify="flex-end" mt="lg">
          <Button variant="default" component={Link} to={id ? `/pipelines/${id}` : '/pipelines'}>
            {t('common.cancel')}
          </Button>
          <Button type="submit" loading={save.isPending}>
            {t('common.save')}
          </Button>
        </Group>
      </ConfigForm>
    </Card>
  )
}
