import { Alert, Button, Card, Center, Divider, PasswordInput, Stack, TextInput, Title } from '@mantine/core'
import { useDocumentTitle } from '@mantine/hooks'
import { useState, type FormEvent } from 'react'
import { useTranslation } from 'react-i18next'
import { useLocation, useNavigate, useSearchParams } from 'react-router'

import { useSignIn, useSignInOptions } from '@/features/session/api/session'
import { Problem, sentence } from '@/lib/api/problem'

export function LoginPage() {
  const { t } = useTranslation()
  useDocumentTitle('Headrace')
  const signIn = useSignIn()
  const options = useSignInOptions()
  const [parameters] = useSearchParams()
  const navigate = useNavigate()
  const from = (useLocation().state as { from?: string } | null)?.from ?? '/'
  const [username, setUsername] = useState('')
  const [password, setPassword] = useState('')
  const fieldErrors = signIn.error instanceof Problem ? signIn.error.errors : {}

  function submit(event: FormEvent) {
    event.preventDefault()
    signIn.mutate({ username, password }, { onSuccess: () => void navigate(from, { replace: true }) })
  }

  const { local = false, provider_url: provider } = options.data ?? {}
  return (
    <Center mih="100vh" p="md">
      <Card withBorder w={380} maw="100%" padding="xl">
        <form onSubmit={submit}>
          <Stack>
            <Title order={1} size="h3">
              {t('login.title')}
            </Title>
            {parameters.has('failed') && <Alert color="red">{t('login.providerFailed')}</Alert>}
            {signIn.error && !Object.keys(fieldErrors).length && <Alert color="red">{sentence(signIn.error)}</Alert>}
            {provider && (
              <Button component="a" href={`${provider}?${new URLSearchParams({ next: from }).toString()}`}>
                {t('login.provider')}
              </Button>
            )}
            {provider && local && <Divider label={t('login.local')} />}
            {local && (
              <>
                <TextInput
                  label={t('login.username')}
                  autoComplete="username"
                  autoFocus={!provider}
                  required
                  value={username}
                  error={fieldErrors.username?.join(' ')}
                  onChange={(event) => setUsername(event.currentTarget.value)}
                />
                <PasswordInput
                  label={t('login.password')}
                  autoComplete="current-password"
                  required
                  value={password}
                  error={fieldErrors.password?.join(' ')}
                  onChange={(event) => setPassword(event.currentTarget.value)}
                />
                <Button type="submit" variant={provider ? 'default' : 'filled'} loading={signIn.isPending}>
                  {t('login.submit')}
                </Button>
              </>
            )}
          </Stack>
        </form>
      </Card>
    </Center>
  )
}
