/** Between single quotes a shell changes nothing; a single quote itself is written outside them. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`
}

/** The command that posts a JSON message to a pipeline. */
export function curlOf(url: string, key: string, body: string): string {
  return [
    `curl ${quoted(url)}`,
    `  -H ${quoted(`Authorization: Bearer ${key}`)}`,
    `  -H 'Content-Type: application/json'`,
    `  -d ${quoted(body)}`,
  ].join(' \\\n')
}
