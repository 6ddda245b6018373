// Puts questions to the search of the built site: its own worker and its own index, outside of a browser.
//   node search.js WORKER INDEX QUESTION...    prints a line of JSON: of each question the pages, best first
const fs = require("fs")
const vm = require("vm")
const withoutFillers = require("../assets/search.js")

const [worker, index, ...questions] = process.argv.slice(2)
let hear
const page = { console, setTimeout, clearTimeout, addEventListener: (_, listener) => (hear = listener) }
page.self = page
vm.runInNewContext(fs.readFileSync(worker, "utf8"), page)

const ask = (data) =>
  new Promise((answer) => {
    page.postMessage = answer
    hear({ data })
  })

const main = async () => {
  const [SETUP, QUERY] = [0, 2]
  await ask({ type: SETUP, data: { ...JSON.parse(fs.readFileSync(index, "utf8")), options: {} } })
  const found = []
  for (const question of questions) {
    const { data } = await ask({ type: QUERY, data: withoutFillers(question) })
    found.push(data.items.map((sections) => sections[0].location.split("#")[0]))
  }
  console.log(JSON.stringify(found))
}
main()
