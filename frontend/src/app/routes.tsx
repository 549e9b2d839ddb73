import { Anchor } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import { Link, Navigate, Route, Routes } from 'react-router'

import { Shell } from '@/app/shell'
import { Page } from '@/components/page'
import { ConnectorFormPage } from '@/features/connectors/components/connector-form-page'
import { ConnectorsPage } from '@/features/connectors/components/connectors-page'
import { JobsPage } from '@/features/jobs/components/jobs-page'
import { PipelineFormPage } from '@/features/pipelines/components/pipeline-form-page'
import { PipelinePage } from '@/features/pipelines/components/pipeline-page'
import { PipelinesPage } from '@/features/pipelines/components/pipelines-page'
import { LoginPage } from '@/features/session/components/login-page'
import { RequireSession } from '@/features/session/components/require-session'

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
        <Route path="/jobs" element={<JobsPage />} />
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
