import {
  IconArrowsSplit2,
  IconBell,
  IconFileCode,
  IconFileExport,
  IconHistory,
  IconKey,
  IconLayoutDashboard,
  IconListDetails,
  IconMailSearch,
  IconMailX,
  IconPlugConnected,
  IconReportMoney,
  IconRoute,
  IconServerCog,
  IconStack2,
  IconTerminal2,
  type Icon,
} from '@tabler/icons-react'
import type { ParseKeys } from 'i18next'
import type { ComponentType } from 'react'

import type { Role } from '@/lib/queries/session'

/** The headings of the navigation, in order. */
export const groups = ['watch', 'data', 'deliveries', 'operations'] as const

export interface PageEntry {
  path: string
  title: ParseKeys
  /** Pages with a group and an icon stand in the navigation. */
  group?: (typeof groups)[number]
  icon?: Icon
  /** Who may open it; every member of the workspace by default. */
  role?: Role
  /** Loads the page when it is first opened. */
  load: () => Promise<ComponentType>
}

/** Every page of the console. The router, the navigation, breadcrumbs and titles are made from this table. */
export const pages: PageEntry[] = [
  { path: '/', title: 'overview.title', group: 'watch', icon: IconLayoutDashboard, load: async () => (await import('@/app/pages/overview-page')).ComposedOverviewPage },
  { path: '/start', title: 'guide.title', role: 'editor', load: async () => (await import('@/features/guide/components/guide-page')).GuidePage },
  { path: '/pipelines', title: 'pipelines.title', group: 'data', icon: IconRoute, load: async () => (await import('@/app/pages/pipelines-page')).ComposedPipelinesPage },
  { path: '/pipelines/new', title: 'pipelines.newTitle', role: 'editor', load: async () => (await import('@/features/pipelines/components/pipeline-editor')).PipelineEditorPage },
  { path: '/pipelines/:id/:tab?', title: 'pipelines.one', load: async () => (await import('@/app/pages/pipeline-page')).ComposedPipelinePage },
  { path: '/pipelines/:id/edit', title: 'common.edit', load: async () => (await import('@/features/pipelines/components/pipeline-editor')).PipelineEditorPage },
  { path: '/connectors', title: 'connectors.title', group: 'data', icon: IconPlugConnected, load: async () => (await import('@/features/connectors/components/connectors-page')).ConnectorsPage },
  { path: '/connectors/new/:type', title: 'connectors.newTitle', role: 'editor', load: async () => (await import('@/features/connectors/components/connector-form-page')).ConnectorFormPage },
  { path: '/connectors/:id/edit', title: 'common.edit', load: async () => (await import('@/features/connectors/components/connector-form-page')).ConnectorFormPage },
  { path: '/config-files', title: 'configFiles.title', group: 'data', icon: IconFileCode, load: async () => (await import('@/features/config-files/components/config-files-page')).ConfigFilesPage },
  { path: '/sql/:tab?', title: 'sql.title', group: 'data', icon: IconTerminal2, load: async () => (await import('@/features/sql/components/sql-page')).SqlPage },
  { path: '/messages', title: 'messages.title', group: 'deliveries', icon: IconMailSearch, load: async () => (await import('@/features/messages/components/messages-page')).MessagesPage },
  { path: '/dead-letters', title: 'deadLetters.title', group: 'deliveries', icon: IconMailX, load: async () => (await import('@/features/deliveries/components/dead-letters-page')).DeadLettersPage },
  { path: '/attempts', title: 'attempts.title', group: 'deliveries', icon: IconListDetails, load: async () => (await import('@/features/deliveries/components/attempts-page')).AttemptsPage },
  { path: '/exports', title: 'exports.title', group: 'deliveries', icon: IconFileExport, load: async () => (await import('@/features/exports/components/exports-page')).ExportsPage },
  { path: '/collections', title: 'collections.title', group: 'deliveries', icon: IconStack2, load: async () => (await import('@/features/collections/components/collections-page')).CollectionsPage },
  { path: '/collections/:id', title: 'collections.one', load: async () => (await import('@/features/collections/components/collection-page')).CollectionPage },
  { path: '/usage', title: 'usage.title', group: 'deliveries', icon: IconReportMoney, load: async () => (await import('@/features/usage/components/usage-page')).UsagePage },
  { path: '/jobs', title: 'jobs.title', group: 'operations', icon: IconServerCog, load: async () => (await import('@/features/jobs/components/jobs-page')).JobsPage },
  { path: '/kafka-proxies', title: 'kafkaProxies.title', group: 'operations', icon: IconArrowsSplit2, load: async () => (await import('@/features/kafka-proxies/components/kafka-proxies-page')).KafkaProxiesPage },
  { path: '/alerts', title: 'alerts.title', group: 'operations', icon: IconBell, load: async () => (await import('@/features/alerts/components/alerts-page')).AlertsPage },
  { path: '/access', title: 'access.title', group: 'operations', icon: IconKey, load: async () => (await import('@/features/access/components/access-page')).AccessPage },
  { path: '/audit', title: 'audit.title', group: 'operations', icon: IconHistory, role: 'admin', load: async () => (await import('@/features/audit/components/audit-page')).AuditPage },
]

/** The pages above one, outermost first: those whose path its own begins with. */
export function parentsOf(page: PageEntry): PageEntry[] {
  const steps = stepsOf(page)
  return pages
    .filter((other) => stepsOf(other).length > 0 && stepsOf(other).length < steps.length)
    .filter((other) => stepsOf(other).every((step, index) => step === steps[index]))
}

/** A path without what may be left out. */
function stepsOf({ path }: PageEntry): string[] {
  return path.split('/').filter((step) => step && !step.endsWith('?'))
}

/** The path of a page that stands above the present one, with the present one's parameters. */
export function linkOf(page: PageEntry, parameters: Record<string, string | undefined>): string {
  return `/${stepsOf(page)
    .map((step) => (step.startsWith(':') ? (parameters[step.slice(1)] ?? step) : step))
    .join('/')}`
}
