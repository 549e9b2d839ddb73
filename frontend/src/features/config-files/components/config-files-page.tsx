import { Alert, Button, Card, Checkbox, FileButton, Group, List, Stack, Text, Textarea, Title } from '@mantine/core'
import { IconAlertTriangle, IconDownload, IconUpload } from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'

import { ChangeList } from '@/components/change-list'
import { Page } from '@/components/page'
import { toastDone, toastFailed } from '@/components/toasts'
import { useApply, useExport, usePlan, type Step } from '@/features/config-files/api/config-files'
import { Problem, sentence } from '@/lib/api/problem'
import { useMay } from '@/lib/queries/session'

/** The workspace as YAML: take it out, change it, see the plan, apply it. */
export function ConfigFilesPage() {
  const { t } = useTranslation()
  const [yaml, setYaml] = useState('')
  const [prune, setPrune] = useState(false)
  const exported = useExport()
  const plan = usePlan()
  const apply = useApply()
  const change = (text: string) => {
    setYaml(text)
    plan.reset()
  }
  const mayEdit = useMay('editor')
  return (
    <Page purpose={t('configFiles.purpose')}>
      <Stack>
        <Group>
          <Button
            variant="default"
            leftSection={<IconDownload size={16} />}
            loading={exported.isPending}
            onClick={() => exported.mutate(undefined, { onSuccess: change, onError: toastFailed })}
          >
            {t('configFiles.export')}
          </Button>
          <FileButton accept=".yaml,.yml" onChange={(file) => void file?.text().then(change)}>
            {(props) => (
              <Button variant="default" leftSection={<IconUpload size={16} />} {...props}>
                {t('configFiles.upload')}
              </Button>
            )}
          </FileButton>
        </Group>
        <Textarea
          label="YAML"
          autosize
          minRows={10}
          maxRows={30}
          spellCheck={false}
          styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)' } }}
          value={yaml}
          onChange={(event) => change(event.currentTarget.value)}
        />
        {mayEdit && (
          <>
            <Checkbox
              label={t('configFiles.prune')}
              checked={prune}
              onChange={(event) => {
                setPrune(event.currentTarget.checked)
                plan.reset()
              }}
            />
            <Group>
              <Button disabled={!yaml.trim()} loading={plan.isPending} onClick={() => plan.mutate({ yaml, prune })}>
                {t('configFiles.plan')}
              </Button>
            </Group>
          </>
        )}
        {plan.error && <Rejected error={plan.error} />}
        {plan.data && (
          <Card withBorder aria-live="polite">
            <Title order={2} size="h5" mb="sm">
              {t('configFiles.planned')}
            </Title>
            <Plan steps={plan.data} />
            {plan.data.length > 0 && (
              <Group mt="md">
                <Button
                  loading={apply.isPending}
                  onClick={() =>
                    apply.mutate(
                      { yaml, prune },
                      {
                        onSuccess: (done) => {
                          plan.reset()
                          toastDone(t('configFiles.applied', { count: done.length }))
                        },
                        onError: toastFailed,
                      },
                    )
                  }
                >
                  {t('configFiles.apply', { count: plan.data.length })}
                </Button>
              </Group>
            )}
          </Card>
        )}
      </Stack>
    </Page>
  )
}

function Plan({ steps }: { steps: Step[] }) {
  const { t } = useTranslation()
  if (!steps.length) return <Text size="sm">{t('configFiles.nothing')}</Text>
  return (
    <Stack gap="sm">
      {steps.map((step) => (
        <div key={`${step.kind} ${step.name} ${step.action}`}>
          <Text size="sm" fw={600}>
            {t(`audit.actions.${step.kind}.${step.action}`, { defaultValue: step.action })}: {step.name}
          </Text>
          {step.changes.length > 0 && <ChangeList changes={step.changes} />}
        </div>
      ))}
    </Stack>
  )
}

function Rejected({ error }: { error: unknown }) {
  const errors = error instanceof Problem ? Object.entries(error.errors) : []
  return (
    <Alert color="red" icon={<IconAlertTriangle />} title={sentence(error)}>
      <List size="sm">
        {errors.map(([path, sentences]) => (
          <List.Item key={path}>
            {path}: {sentences.join(' ')}
          </List.Item>
        ))}
      </List>
    </Alert>
  )
}
