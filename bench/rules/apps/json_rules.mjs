// json-rules-engine: `json_rules.mjs STREAM SECONDS own|all`. own: an engine for each rule, asked for the changed point;
// all: one engine with all rules, which checks each of them with each run. MODULES is the folder of the node modules.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const require = createRequire(`${process.env.MODULES}/x.js`)
const { Engine } = require('json-rules-engine')
const [path, seconds, mode] = process.argv.slice(2)
const { limit, sweeps } = JSON.parse(readFileSync(path))
const points = sweeps[0].length

const rule = (fact) => ({
  conditions: { all: [{ fact, operator: 'greaterThan', value: limit }] },
  event: { type: 'alarm' }
})

let began = performance.now()
const engines = []
if (mode === 'own') {
  for (let at = 0; at < points; at++) engines.push(new Engine([rule('value')]))
} else {
  const engine = new Engine()
  for (let at = 0; at < points; at++) engine.addRule(rule(`p${at}`))
  engines.push(engine)
}
const builtS = (performance.now() - began) / 1000

let changes = 0
let matched = 0
began = performance.now()
for (const values of sweeps) {
  if (mode === 'own') {
    for (let at = 0; at < points; at++) {
      const { events } = await engines[at].run({ value: values[at] })
      matched += events.length
    }
  } else {
    const facts = {}
    for (let at = 0; at < points; at++) facts[`p${at}`] = values[at]
    const { events } = await engines[0].run(facts)
    matched += events.length
  }
  changes += points
  if (performance.now() - began >= seconds * 1000) break
}
const took = (performance.now() - began) / 1000
console.log(JSON.stringify({ checks: changes, changes, matched, seconds: took, built_s: builtS }))
