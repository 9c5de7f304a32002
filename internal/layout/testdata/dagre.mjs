// Fills in the crossings of dagre in crossings.json: npm install @dagrejs/dagre@3.1.3 && node dagre.mjs crossings.json
// A crossing is a point at which two lines cross. Places where lines only touch do not count.
import fs from 'node:fs'
import { createRequire } from 'node:module'
const dagre = createRequire(process.cwd() + '/')('@dagrejs/dagre')

const side = (a, b, c) => Math.sign((b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x))

function cross (a, b, c, d) {
  return side(a, b, c) * side(a, b, d) < 0 && side(c, d, a) * side(c, d, b) < 0
}

function crossings (lines) {
  let n = 0
  for (let i = 0; i < lines.length; i++) {
    for (let j = 0; j < i; j++) {
      for (let k = 1; k < lines[i].length; k++) {
        for (let l = 1; l < lines[j].length; l++) {
          if (cross(lines[i][k - 1], lines[i][k], lines[j][l - 1], lines[j][l])) n++
        }
      }
    }
  }
  return n
}

const file = process.argv[2]
const all = JSON.parse(fs.readFileSync(file))
for (const graph of all) {
  const g = new dagre.graphlib.Graph({ multigraph: true })
  g.setGraph({ rankdir: 'LR' })
  g.setDefaultEdgeLabel(() => ({}))
  for (let i = 0; i < graph.boxes; i++) g.setNode(String(i), { width: 140, height: 48 })
  graph.edges.split(' ').forEach((edge, i) => {
    const [from, to] = edge.split('>')
    g.setEdge(from, to, { width: 100, height: 16, labelpos: 'c' }, String(i))
  })
  dagre.layout(g)
  graph.dagre = crossings(g.edges().map(e => g.edge(e).points))
  if (process.argv[3]) console.log(graph.name, graph.boxes, graph.dagre)
}
fs.writeFileSync(file, '[\n' + all.map(g => '  ' + JSON.stringify(g)).join(',\n') + '\n]\n')
