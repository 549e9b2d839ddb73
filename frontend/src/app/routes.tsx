import { Anchor } from '@mantine/core'
import { lazy } from 'react'
import { useTranslation } from 'react-i18next'
import { Link, Navigate, Route, Routes } from 'react-router'

import { Shell } from '@/app/shell'
import { Page } from '@/components/page'
import { LoginPage } from '@/features/session/components/login-page'
import { RequireSession } from '@/features/session/components/require-session'

// Each page is loaded when it is first opened.
const ConnectorFormPage = lazy(async () => ({ default: (await import('@/features/connectors/components/connector-form-page')).ConnectorFormPage }))
const ConnectorsPage = lazy(async () => ({ default: (await import('@/features/connectors/components/connectors-page')).ConnectorsPage }))
const AlertsPage = lazy(async () => ({ default: (await import('@/features/alerts/components/alerts-page')).AlertsPage }))
const AttemptsPage = lazy(async () => ({ default: (await import('@/features/deliveries/components/attempts-page')).AttemptsPage }))
const DeadLettersPage = lazy(async () => ({ default: (await import('@/features/deliveries/components/dead-letters-page')).DeadLettersPage }))
const UsagePage = lazy(async () => ({ default: (await import('@/features/usage/components/usage-page')).UsagePage }))
const AuditPage = lazy(async () => ({ default: (await import('@/features/audit/components/audit-page')).AuditPage }))
const AccessPage = lazy(async () => ({ default: (await import('@/features/access/components/access-page')).AccessPage }))
const ConfigFilesPage = lazy(async () => ({ default: (await import('@/features/config-files/components/config-files-page')).ConfigFilesPage }))
const JobsPage = lazy(async () => ({ default: (await import('@/features/jobs/components/jobs-page')).JobsPage }))
const KafkaProxiesPage = lazy(async () => ({ default: (await import('@/features/kafka-proxies/components/kafka-proxies-page')).KafkaProxiesPage }))
const PipelineFormPage = lazy(async () => ({ default: (await import('@/features/pipelines/components/pipeline-form-page')).PipelineFormPage }))
const PipelinePage = lazy(async () => ({ default: (await import('@/features/pipelines/components/pipeline-page')).PipelinePage }))
const PipelinesPage = lazy(async () => ({ default: (await import('@/features/pipelines/components/pipelines-page')).PipelinesPage }))

export function AppRoutes() {
  return (
    <Routes>
      <Route path="/login" element={<LoginPage />} />
      <Route
        element={
          <RequireSession>
            <Shell />
          </RequireSession>
        }
      >
        <Route index element={<Navigate to="/pipelines" replace />} />
        <Route path="/pipelines" element={<PipelinesPage />} />
        <Route path="/pipelines/new" element={<PipelineFormPage />} />
        <Route path="/pipelines/:id/edit" element={<PipelineFormPage />} />
        <Route path="/pipelines/:id/:tab?" element={<PipelinePage />} />
        <Route path="/connectors" element={<ConnectorsPage />} />
        <Route path="/connectors/new/:type" element={<ConnectorFormPage />} />
        <Route path="/connectors/:id/edit" element={<ConnectorFormPage />} />
        <Route path="/dead-letters" element={<DeadLettersPage />} />
        <Route path="/attempts" element={<AttemptsPage />} />
        <Route path="/usage" element={<UsagePage />} />
        <Route path="/alerts" element={<AlertsPage />} />
        <Route path="/audit" element={<AuditPage />} />
        <Route path="/access" element={<AccessPage />} />
        <Route path="/config-files" element={<ConfigFilesPage />} />
        <Route path="/jobs" element={<JobsPage />} />
        <Route path="/kafka-proxies" element={<KafkaProxiesPage />} />
        <Route path="*" element={<NotFound />} />
      </Route>
    </Routes>
  )
}

function NotFound() {
  const { t } = useTranslation()
  return (
    <Page title={t('notFound.title')}>
      <Anchor component={Link} to="/pipelines">
        {t('notFound.back')}
      </Anchor>
    </Page>
  )
}
