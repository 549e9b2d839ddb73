import { Button, Card, Group, Select, Table, Text, TextInput, Title } from '@mantine/core'
import { useState, type SubmitEvent } from 'react'
import { useTranslation } from 'react-i18next'

import { ConfirmButton } from '@/components/confirm-button'
import { Loaded } from '@/components/states'
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

export function Members({ isAdmin }: { isAdmin: boolean }) {
  const { t } = useTranslation()
  const query = useMembers()
  return (
    <Card withBorder>
      <Title order={3} size="h5" mb="sm">
        {t('access.members')}
      </Title>
      {isAdmin && <AddMember />}
      <Loaded query={query}>
        {(members) => (
          <Table.ScrollContainer minWidth={520}>
            <Table>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t('login.username')}</Table.Th>
                  <Table.Th>{t('access.role')}</Table.Th>
                  <Table.Th>{t('access.lastLogin')}</Table.Th>
                  <Table.Th />
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {members.map((member) => (
                  <MemberRow key={member.id} member={member} editable={isAdmin && !member.from_provider} />
                ))}
              </Table.Tbody>
            </Table>
          </Table.ScrollContainer>
        )}
      </Loaded>
    </Card>
  )
}

function useRoleChoices() {
  const { t } = useTranslation()
  return roles.map((value) => ({ value, label: t(`access.roles.${value}`) }))
}

function MemberRow({ member, editable }: { member: Member; editable: boolean }) {
  const { t } = useTranslation()
  const choices = useRoleChoices()
  const change = useChangeMember()
  const remove = useRemoveMember()
  return (
    <Table.Tr>
      <Table.Td>{member.username}</Table.Td>
      <Table.Td>
        {editable ? (
          <Select
            size="xs"
            w={170}
            aria-label={t('access.roleOf', { name: member.username })}
            allowDeselect={false}
            data={choices}
            value={member.role}
            onChange={(role) => change.mutate({ id: member.id, role: role as Role }, { onError: toastFailed })}
          />
        ) : (
          t(`access.roles.${member.role}`)
        )}
        {member.from_provider && (
          <Text size="xs" c="dimmed">
            {t('access.fromProvider')}
          </Text>
        )}
      </Table.Td>
      <Table.Td>
        <Time at={member.last_login} />
      </Table.Td>
      <Table.Td>
        {editable && (
          <Group justify="flex-end">
            <ConfirmButton
              size="compact-xs"
              title={t('access.removeTitle', { name: member.username })}
              text={t('access.removeText')}
              onConfirm={() => remove.mutate(member.id, { onError: toastFailed })}
            >
              {t('access.remove')}
            </ConfirmButton>
          </Group>
        )}
      </Table.Td>
    </Table.Tr>
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
