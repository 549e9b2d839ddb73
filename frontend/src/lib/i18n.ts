import i18next from 'i18next'
import { initReactI18next } from 'react-i18next'

import { loadServerTexts, serverTextsLoaded } from '@/lib/texts'
import en from '@/locales/en.json'

export const languages = { en: 'English', 'pt-BR': 'Português (Brasil)' }
export type Language = keyof typeof languages

declare module 'i18next' {
  interface CustomTypeOptions {
    resources: { translation: typeof en }
  }
}

void i18next.use(initReactI18next).init({
  resources: { en: { translation: en } },
  lng: 'en',
  fallbackLng: 'en',
  interpolation: { escapeValue: false },
})

i18next.on('languageChanged', (language) => {
  document.documentElement.lang = language
})

/** Shows the console in a language, whose texts are loaded when they are first needed: those of the server later. */
async function showLanguage(language: Language): Promise<void> {
  if (language === 'pt-BR') {
    const texts = await import('@/locales/pt-BR.json')
    i18next.addResourceBundle('pt-BR', 'translation', texts.default)
    loadServerTexts('pt-BR', import('@/locales/forms.pt-BR.json').then((forms) => forms.default))
  }
  await i18next.changeLanguage(language)
}

export async function chooseLanguage(language: Language): Promise<void> {
  localStorage.setItem('language', language)
  await showLanguage(language)
  await serverTextsLoaded()
}

/** The language that was chosen here before, else the browser's. */
export function showPreferredLanguage(): Promise<void> {
  const chosen = localStorage.getItem('language') ?? navigator.language
  return showLanguage(chosen.startsWith('pt') ? 'pt-BR' : 'en')
}

export default i18next
