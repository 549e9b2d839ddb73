import { Button, Group, Modal, NumberInput, Stack, Text, TextInput } from '@mantine/core'
import { useState, type SubmitEvent } from 'react'
import { useTranslation } from 'react-i18next'

import { useChangeResources, type Job, type Resources } from '@/features/jobs/api/jobs'
import { fieldErrors } from '@/lib/api/problem'

const numbers = ['slots', 'driver_memory', 'executor_memory', 'executor_cores', 'most_cores'] as const
const optional = new Set<string>(['executor_memory', 'executor_cores', 'most_cores'])

/** What the application of a job is to have of Spark. */
export function ResourcesDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const { t } = useTranslation()
  const change = useChangeResources(job.name)
  const [wanted, setWanted] = useState<Resources>({
    master: job.master,
    slots: job.slots,
    driver_memory: job.driver_memory,
    executor_memory: job.executor_memory,
    executor_cores: job.executor_cores,
    most_cores: job.most_cores,
  })
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    change.mutate(wanted, { onSuccess: onClose })
  }
  return (
    <Modal opened onClose={onClose} title={t('jobs.resourcesTitle', { name: job.name })} centered>
      <form onSubmit={submit} noValidate>
        <Stack>
          <TextInput
            label={t('jobs.resource.master')}
            description={t('jobs.resourceHint.master')}
            value={wanted.master}
            error={fieldErrors(change.error, 'master')}
            onChange={(event) => setWanted({ ...wanted, master: event.currentTarget.value.trim() })}
          />
          {numbers.map((name) => (
            <NumberInput
              key={name}
              label={t(`jobs.resource.${name}`)}
              description={t(`jobs.resourceHint.${name}`)}
              value={wanted[name] ?? ''}
              allowDecimal={false}
              allowNegative={false}
              required={!optional.has(name)}
              error={fieldErrors(change.error, name)}
              onChange={(value) => setWanted({ ...wanted, [name]: value === '' ? null : Number(value) })}
            />
          ))}
          <Text size="sm" c="dimmed">
            {t('jobs.resourcesEffect')}
          </Text>
          {change.error && fieldErrors(change.error, '') && (
            <Text size="sm" c="red">
              {fieldErrors(change.error, '')}
            </Text>
          )}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {t('common.cancel')}
            </Button>
            <Button type="submit" loading={change.isPending}>
              {t('common.save')}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  )
}
