/** Focuses an element as soon as it is there: a panel may be loading. */
export function focusOn(elementId: string, tries = 40) {
  const element = document.getElementById(elementId)
  if (element) {
    element.focus({ preventScroll: true })
    element.scrollIntoView({ block: 'center' })
  } else if (tries) setTimeout(() => focusOn(elementId, tries - 1), 50)
}
