import { afterAll, vi } from 'vitest'

// What jsdom lacks and the components ask for. Tests that need no page run without it.
if (typeof document !== 'undefined') {
  vi.stubGlobal('matchMedia', () => ({ matches: false, addEventListener: vi.fn(), removeEventListener: vi.fn() }))
  class Observer {
    observe = vi.fn()
    unobserve = vi.fn()
    disconnect = vi.fn()
  }
  vi.stubGlobal('ResizeObserver', Observer)
  vi.stubGlobal('IntersectionObserver', Observer)
  Object.defineProperty(document, 'fonts', { value: new EventTarget(), configurable: true })
  Element.prototype.scrollIntoView = vi.fn()
}

// Files share one page, which is made once.
afterAll(() => vi.unstubAllGlobals())
