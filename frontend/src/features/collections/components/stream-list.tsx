import { Anchor, Badge, Stack, Text, Title } from '@mantine/core'
import { IconAlertTriangle, IconCircleCheck, IconHelpCircle } from '@tabler/icons-react'
import { useTranslation } from 'react-i18next'
import { Link } from 'react-router'

import { DataTable } from '@/components/data-table'
import { LoadMore } from '@/components/load-more'
import { Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { moment } from '@/features/collections/api/collections'
import { useChangeStreams, type ChangeStream } from '@/features/collections/api/streams'
import { count } from '@/lib/format'
import { useServerTexts } from '@/lib/texts'
import { includes, useRole } from '@/lib/queries/session'

/** The change streams of the workspace and how far each has come; nothing where there are none. */
export function StreamList() {
  const { t } = useTranslation()
  const query = useChangeStreams()
  return (
    <Loaded query={query}>
      {({ pages }) => {
        const streams = pages.flatMap((page) => page.results)
        if (!streams.length) return null
        return (
          <Stack component="section" gap="sm" mt="xl" aria-label={t('collections.streams.title')}>
            <div>
              <Title order={2} size="h4">
                {t('collections.streams.title')}
              </Title>
              <Text c="dimmed">{t('collections.streams.purpose')}</Text>
            </div>
            <StreamTable streams={streams} />
            <LoadMore query={query} />
          </Stack>
        )
      }}
    </Loaded>
  )
}

function StreamTable({ streams }: { streams: ChangeStream[] }) {
  const { t, i18n } = useTranslation()
  const sources = ({ collections }: ChangeStream) => collections.join(', ') || t('collections.streams.outputs')
  const waiting = ({ waiting: documents }: ChangeStream) => (documents === null ? '–' : count(documents, i18n.language))
  return (
    <DataTable
      label={t('collections.streams.title')}
      isFramed
      rows={streams}
      keyOf={({ id }) => id}
      columns={[
        { name: 'name', title: t('common.name'), cell: (stream) => <Name stream={stream} />, sortBy: ({ name }) => name, isLead: true },
        { name: 'state', title: t('common.status'), cell: ({ state }) => <State state={state} />, sortBy: ({ state }) => state },
        { name: 'sources', title: t('collections.streams.sources'), cell: sources },
        {
          name: 'complete',
          title: t('collections.streams.complete'),
          cell: ({ complete }) => <Time at={moment(complete)} />,
          sortBy: ({ complete }) => complete,
          isStill: true,
        },
        { name: 'waiting', title: t('collections.streams.waiting'), cell: waiting, sortBy: (stream) => stream.waiting, isNumber: true },
        { name: 'updates', title: t('collections.streams.updates'), cell: ({ updates }) => count(updates, i18n.language), isNumber: true },
      ]}
    />
  )
}

function Name({ stream }: { stream: ChangeStream }) {
  const { t } = useTranslation()
  const role = useRole()
  const inTheirLanguage = useServerTexts()
  return (
    <>
      {includes(role, 'editor') ? (
        <Anchor component={Link} to={`/connectors/${stream.id}/edit`} fw={500}>
          {stream.name}
        </Anchor>
      ) : (
        <Text fw={500} size="sm">
          {stream.name}
        </Text>
      )}
      {stream.failures.map((failure) => (
        <Text key={failure} size="xs" c="red" style={{ overflowWrap: 'anywhere' }}>
          {inTheirLanguage(failure)}
        </Text>
      ))}
      {stream.state === 'silent' && (
        <Text size="xs" c="dimmed">
          {t('collections.streams.silentHint')} <Time at={stream.reported_at} />
        </Text>
      )}
    </>
  )
}

const looks = {
  starting: { color: 'gray', icon: IconHelpCircle },
  sending: { color: 'gray', icon: IconCircleCheck },
  failing: { color: 'red', icon: IconAlertTriangle },
  silent: { color: 'yellow', icon: IconHelpCircle },
}

function State({ state }: { state: ChangeStream['state'] }) {
  const { t } = useTranslation()
  const { color, icon: Icon } = looks[state]
  return (
    <Badge color={color} variant="light" tt="none" miw="max-content" leftSection={<Icon size={12} aria-hidden />}>
      {t(`collections.streams.states.${state}`)}
    </Badge>
  )
}
