/** The mark: a channel that brings water to a wheel. `public/favicon.svg` is the same. */
export function Logo({ size = 28 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden focusable="false">
      <rect width="32" height="32" rx="8" fill="#0c6e8c" />
      <g fill="none" strokeLinecap="round">
        <path d="M4.5 8.5h13.5a7 7 0 0 1 7 7v.5" stroke="#fff" strokeWidth="3" />
        <path d="M4.5 13.5h5" stroke="#8fd3e8" strokeWidth="2.5" />
        <circle cx="18" cy="20.5" r="5.6" stroke="#fff" strokeWidth="2.6" />
        <path d="M18 16.4v8.2M13.9 20.5h8.2" stroke="#8fd3e8" strokeWidth="2" />
      </g>
    </svg>
  )
}
