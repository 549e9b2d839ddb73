import { Kbd, Modal, Table } from '@mantine/core'
import { useTranslation } from 'react-i18next'

const keys = ['j', 'k', 'enter', 'x', 'through', 'search', 'palette', 'help'] as const

/** What the keys do. */
export function Shortcuts({ opened, onClose }: { opened: boolean; onClose: () => void }) {
  const { t } = useTranslation()
  return (
    <Modal opened={opened} onClose={onClose} title={t('keys.title')} centered>
      <Table>
        <Table.Tbody>
          {keys.map((key) => (
            <Table.Tr key={key}>
              <Table.Td w={110}>
                <Kbd>{t(`keys.names.${key}`)}</Kbd>
              </Table.Td>
              <Table.Td>{t(`keys.meanings.${key}`)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Modal>
  )
}
