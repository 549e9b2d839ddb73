import { Anchor, Card, Group, Stack, Text, Title } from '@mantine/core'
import { IconCircleCheck } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { FindingRow } from '@/components/finding-row'
import type { Need } from '@/lib/pipeline-status'

/** More are on the page of the pipelines. */
const most = 12

/** The pipelines that need somebody, each with its reason and the button that helps. */
export function Needs({ needs }: { needs: Need[] }) {
  const { t } = useTranslation()
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h5">
          {t('overview.needs')}
        </Title>
        {needs.length > most && (
          <Anchor component={Link} to="/pipelines" size="sm">
            {t('overview.allNeeds', { count: needs.length })}
          </Anchor>
        )}
      </Group>
      {needs.length ? (
        <Stack gap="md">
          {needs.slice(0, most).map(({ pipeline, finding }) => (
            <FindingRow
              key={`${pipeline.id} ${finding.state} ${finding.place} ${finding.reason} ${finding.error}`}
              pipeline={pipeline.id}
              finding={finding}
              lead={
                <Anchor component={Link} to={`/pipelines/${pipeline.id}`} fw={600} size="sm">
                  {pipeline.name}
                </Anchor>
              }
            />
          ))}
        </Stack>
      ) : (
        <Group gap="xs" wrap="nowrap" c="dimmed">
          <IconCircleCheck size={18} aria-hidden />
          <Text size="sm">{t('overview.noNeeds')}</Text>
        </Group>
      )}
    </Card>
  )
}
