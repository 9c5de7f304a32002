package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/tutti-project/tutti/internal/engine"
)

// pathWords says in words what a run did in a part of a job's path.
var pathWords = map[engine.PathPhase]string{
	engine.PathWanted:  "waits until its agent asks for work",
	engine.PathCompile: "collects facts and compiles",
	engine.PathHeld:    "is held at its gate",
	engine.PathApply:   "applies",
	engine.PathStop:    "ends a run that was stopped at its gate",
	engine.PathDecide:  "waits for the server",
	engine.PathWait:    "waits for a step without runs",
}

// printPath prints the chain of runs that determined how long the job took.
func printPath(out io.Writer, j *engine.Job) {
	path := j.Path()
	if len(path) == 0 {
		fmt.Fprintln(out, "No run has begun yet.")
		return
	}
	var all time.Duration
	for _, p := range path {
		all += p.Took()
	}
	root := newOutline("path: %s", short(all))
	var node *outline
	for i, p := range path {
		if i == 0 || p.Run != path[i-1].Run {
			node = root.add("%s", p.Node)
		}
		node.add("%s  %s", short(p.Took()), pathWords[p.Phase])
	}
	root.print(out)
}
