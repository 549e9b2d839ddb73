const focusable = 'input, textarea, select, button, [tabindex]'

/**
 * Focuses a field as soon as it is there: a panel may be loading. One that is never there is part of the field above it,
 * whose id its own begins with.
 */
export function focusOn(elementId: string, tries = 40) {
  const element = document.getElementById(elementId)
  if (element) {
    const target = element.matches(focusable) ? element : (element.querySelector<HTMLElement>(focusable) ?? element)
    target.focus({ preventScroll: true })
    element.scrollIntoView({ block: 'center' })
  } else if (tries) setTimeout(() => focusOn(elementId, tries - 1), 50)
  else if (elementId.includes('_')) focusOn(elementId.slice(0, elementId.lastIndexOf('_')), 1)
}
