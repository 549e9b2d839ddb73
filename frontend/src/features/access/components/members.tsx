import { Button, Card, Group, Select, Text, TextInput, Title } from '@mantine/core'
import { useState, type SubmitEvent } from 'react'
import { useTranslation } from 'react-i18next'

import { ConfirmButton } from '@/components/confirm-button'
import { DataTable } from '@/components/data-table'
import { ListExtent } from '@/components/list-extent'
import { SearchInput } from '@/components/search-input'
import { Empty, Loaded } from '@/components/states'
import { Time } from '@/components/time'
import { toastFailed } from '@/components/toasts'
import {
  useAddMember,
  useChangeMember,
  useMembers,
  useRemoveMember,
  type Member,
} from '@/features/access/api/access'
import { fieldErrors } from '@/lib/api/problem'
import { roles, type Role } from '@/lib/queries/session'
import { useSearch } from '@/lib/use-filter'

export function Members({ isAdmin }: { isAdmin: boolean }) {
  const { t } = useTranslation()
  const search = useSearch('member')
  const query = useMembers(search.settled)
  return (
    <Card withBorder>
      <Title order={2} size="h5" mb="sm">
        {t('access.members')}
      </Title>
      {isAdmin && <AddMember />}
      <Group mb="sm">
        <SearchInput label={t('access.searchMembers')} value={search.typed} onChange={search.set} />
      </Group>
      <ListExtent query={query} hint={t('table.searchHint')} />
      <Loaded query={query}>
        {({ rows }) => (rows.length ? <MemberTable members={rows} isAdmin={isAdmin} /> : <Empty title={t('access.noMember')} />)}
      </Loaded>
    </Card>
  )
}

function useRoleChoices() {
  const { t } = useTranslation()
  return roles.map((value) => ({ value, label: t(`access.roles.${value}`) }))
}

function MemberTable({ members, isAdmin }: { members: Member[]; isAdmin: boolean }) {
  const { t } = useTranslation()
  const remove = useRemoveMember()
  const all = useMembers().data
  const admins = all?.rows.filter(({ role }) => role === 'admin') ?? []
  // Without an admin nobody could give the workspace one. Of a list that is not all there, the server knows.
  const isOnlyAdmin = (member: Member) => !all?.hasMore && admins.length === 1 && admins[0]?.id === member.id
  const isEditable = (member: Member) => isAdmin && !member.from_provider && !isOnlyAdmin(member)
  return (
    <DataTable
      label={t('access.members')}
      rows={members}
      keyOf={({ id }) => String(id)}
      actions={(member) =>
        isEditable(member) && (
          <ConfirmButton
            size="compact-xs"
            title={t('access.removeTitle', { name: member.username })}
            text={t('access.removeText')}
            onConfirm={() => remove.mutate(member.id, { onError: toastFailed })}
          >
            {t('access.remove')}
          </ConfirmButton>
        )
      }
      columns={[
        { name: 'username', title: t('login.username'), cell: ({ username }) => username, sortBy: ({ username }) => username, isLead: true },
        {
          name: 'role',
          title: t('access.role'),
          cell: (member) => (
            <>
              {isEditable(member) ? <RoleSelect member={member} /> : t(`access.roles.${member.role}`)}
              {member.from_provider && <Note text={t('access.fromProvider')} />}
              {isOnlyAdmin(member) && <Note text={t('access.onlyAdmin')} />}
            </>
          ),
        },
        { name: 'login', title: t('access.lastLogin'), cell: ({ last_login }) => <Time at={last_login} />, isStill: true },
      ]}
    />
  )
}

function Note({ text }: { text: string }) {
  return (
    <Text size="xs" c="dimmed">
      {text}
    </Text>
  )
}

function RoleSelect({ member }: { member: Member }) {
  const { t } = useTranslation()
  const choices = useRoleChoices()
  const change = useChangeMember()
  return (
    <Select
      size="xs"
      w={170}
      aria-label={t('access.roleOf', { name: member.username })}
      data={choices}
      value={member.role}
      onChange={(role) => change.mutate({ id: member.id, role: role as Role }, { onError: toastFailed })}
    />
  )
}

function AddMember() {
  const { t } = useTranslation()
  const choices = useRoleChoices()
  const add = useAddMember()
  const [username, setUsername] = useState('')
  const [role, setRole] = useState<Role>('viewer')
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    add.mutate({ username, role }, { onSuccess: () => setUsername('') })
  }
  return (
    <form onSubmit={submit}>
      <Group align="flex-start" mb="md">
        <TextInput
          w={{ base: '100%', xs: 240 }}
          label={t('login.username')}
          required
          value={username}
          error={add.error && fieldErrors(add.error, 'username')}
          onChange={(event) => setUsername(event.currentTarget.value)}
        />
        <Select
          w={{ base: '100%', xs: 180 }}
          label={t('access.role')}
          allowDeselect={false}
          data={choices}
          value={role}
          onChange={(value) => setRole(value as Role)}
        />
        <Button type="submit" variant="default" mt={{ base: 0, xs: 25 }} loading={add.isPending}>
          {t('access.add')}
        </Button>
      </Group>
    </form>
  )
}
