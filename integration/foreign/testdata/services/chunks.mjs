// A service that answers with pieces of a file, each in a chunk of its own.
//
//   node chunks.mjs PORT FILE
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { setImmediate } from 'node:timers/promises'

const [port, file] = process.argv.slice(2)
const block = readFileSync(file)

createServer(async (request, response) => {
  const query = new URL(request.url, 'http://localhost').searchParams
  let at = Number(query.get('from'))
  for (const item of query.get('pieces').split(',')) {
    const [length, times = '1'] = item.split('x')
    for (let i = 0; i < Number(times); i++) {
      response.write(block.subarray(at, at += Number(length)))
      if (i % 8 === 0) await setImmediate() // what was written goes out by itself
    }
  }
  response.end()
}).listen(Number(port), '127.0.0.1')
