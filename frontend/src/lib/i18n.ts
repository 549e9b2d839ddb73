import i18next from 'i18next'
import { initReactI18next } from 'react-i18next'

import en from '@/locales/en.json'
import ptBR from '@/locales/pt-BR.json'

export const languages = { en: 'English', 'pt-BR': 'Português (Brasil)' }

declare module 'i18next' {
  interface CustomTypeOptions {
    resources: { translation: typeof en }
  }
}

const preferred = localStorage.getItem('language') ?? (navigator.language.startsWith('pt') ? 'pt-BR' : 'en')

void i18next.use(initReactI18next).init({
  resources: { en: { translation: en }, 'pt-BR': { translation: ptBR } },
  lng: preferred,
  fallbackLng: 'en',
  interpolation: { escapeValue: false },
})

i18next.on('languageChanged', (language) => {
  localStorage.setItem('language', language)
  document.documentElement.lang = language
})

export default i18next
