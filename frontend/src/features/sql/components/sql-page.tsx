import { Button, Card, Checkbox, Grid, Group, Skeleton, Stack, Tabs, Text } from '@mantine/core'
import { IconPlayerPlay, IconPlayerStop } from '@tabler/icons-react'
import { useQueryClient } from '@tanstack/react-query'
import { lazy, Suspense, useCallback, useEffect, useMemo, useRef, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useNavigate, useParams } from 'react-router'

import { Page } from '@/components/page'
import { Empty } from '@/components/states'
import { toastFailed } from '@/components/toasts'
import { keys, useLanguage, useObjects } from '@/features/sql/api/sql'
import { streamed } from '@/features/sql/api/stream'
import { withLine, withoutOpen, type Outcome } from '@/features/sql/outcome'

import { HistoryList } from './history-list'
import { ObjectsTree } from './objects-tree'
import { Outcomes } from './outcomes'
import { QueriesTable } from './queries-table'
import type { Editor } from './sql-editor'

const SqlEditor = lazy(async () => ({ default: (await import('./sql-editor')).SqlEditor }))

const tabs = ['results', 'queries', 'history'] as const

/** What was typed, until the console is left: it may hold secrets, and is stored nowhere. */
let draft = ''

/** Statements of Connect SQL: written, executed, and their rows followed. */
export function SqlPage() {
  const { t } = useTranslation()
  const { tab = 'results' } = useParams()
  const navigate = useNavigate()
  const language = useLanguage()
  const objects = useObjects()
  const editor = useRef<Editor>(null)
  const [fromBeginning, setFromBeginning] = useState(false)
  const { outcomes, running, run, stop } = useExecution()
  const names = useMemo(
    () => Object.fromEntries((objects.data?.sources ?? []).map(({ name, columns }) => [name, columns.map((column) => column.name)])),
    [objects.data],
  )
  const start = () => {
    const { text, linesBefore } = editor.current?.text() ?? { text: '', linesBefore: 0 }
    if (!text.trim()) return
    void navigate('/sql/results', { replace: true })
    void run(text, linesBefore, fromBeginning)
  }
  const insert = (text: string) => editor.current?.insert(text)
  return (
    <Page purpose={t('sql.purpose')}>
      <Grid>
        <Grid.Col span={{ base: 12, md: 9 }} order={{ base: 1, md: 2 }}>
          <Stack>
            <Card withBorder padding="sm">
              <Suspense fallback={<Skeleton height={150} />}>
                <SqlEditor
                  ref={editor}
                  label={t('sql.editor')}
                  hint={t('sql.editorHint')}
                  initial={draft}
                  language={language.data}
                  names={names}
                  onChange={(text) => {
                    draft = text
                  }}
                  onRun={start}
                />
              </Suspense>
              <Group mt="sm" justify="space-between">
                <Group gap="sm">
                  <Button leftSection={<IconPlayerPlay size={16} />} onClick={start} disabled={running}>
                    {t('sql.run')}
                  </Button>
                  <Button variant="default" leftSection={<IconPlayerStop size={16} />} onClick={stop} disabled={!running}>
                    {t('sql.stop')}
                  </Button>
                  <Checkbox
                    label={t('sql.fromBeginning')}
                    checked={fromBeginning}
                    onChange={(event) => setFromBeginning(event.currentTarget.checked)}
                  />
                </Group>
                <Text size="xs" c="dimmed">
                  {t('sql.keys')}
                </Text>
              </Group>
            </Card>
            <Tabs value={tab} onChange={(value) => void navigate(`/sql/${value}`, { replace: true })} keepMounted={false}>
              <Tabs.List mb="sm">
                {tabs.map((value) => (
                  <Tabs.Tab key={value} value={value}>
                    {t(`sql.tabs.${value}`)}
                  </Tabs.Tab>
                ))}
              </Tabs.List>
              <Tabs.Panel value="results">
                {outcomes.length ? (
                  <Outcomes outcomes={outcomes} onShow={(line, column) => editor.current?.show(line, column)} />
                ) : (
                  <Empty title={t('sql.noResults')} hint={t('sql.noResultsHint')} />
                )}
              </Tabs.Panel>
              <Tabs.Panel value="queries">
                <QueriesTable />
              </Tabs.Panel>
              <Tabs.Panel value="history">
                <HistoryList onChoose={insert} />
              </Tabs.Panel>
            </Tabs>
          </Stack>
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 3 }} order={{ base: 2, md: 1 }}>
          <ObjectsTree onChoose={insert} />
        </Grid.Col>
      </Grid>
    </Page>
  )
}

/** Executes statements; leaving the page ends a query, as the button does. */
function useExecution() {
  const client = useQueryClient()
  const [outcomes, setOutcomes] = useState<Outcome[]>([])
  const [running, setRunning] = useState(false)
  const abort = useRef<AbortController | null>(null)
  useEffect(() => () => abort.current?.abort(), [])
  const run = useCallback(
    async (text: string, linesBefore: number, fromBeginning: boolean) => {
      abort.current?.abort()
      const controller = new AbortController()
      abort.current = controller
      setOutcomes([])
      setRunning(true)
      try {
        for await (const line of streamed(text, fromBeginning, controller.signal)) {
          const placed = line.type === 'error' ? { ...line, line: line.line + linesBefore } : line
          setOutcomes((before) => withLine(before, placed))
        }
      } catch (error) {
        if (!controller.signal.aborted) toastFailed(error)
      }
      setOutcomes(withoutOpen)
      setRunning(false)
      const changed = Object.values(keys).filter((queryKey) => queryKey !== keys.language)
      await Promise.all(changed.map((queryKey) => client.invalidateQueries({ queryKey })))
    },
    [client],
  )
  return { outcomes, running, run, stop: () => abort.current?.abort() }
}
