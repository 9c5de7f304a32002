package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
)

// treeView draws the job as a tree at the bottom of the terminal. treeView draws
// a few times each second. Failures are printed above the tree, where they stay.
type treeView struct {
	mu       sync.Mutex
	progress *progress
	out      *os.File
	hints    io.Writer
	drawn    int // number of lines of the last drawing
	stop     chan struct{}
	stopped  sync.WaitGroup
	paint    palette
}

const redraw = 125 * time.Millisecond

func newTreeView(p *progress, out *os.File, hints io.Writer) *treeView {
	v := &treeView{progress: p, out: out, hints: hints, stop: make(chan struct{}), paint: palette(os.Getenv("NO_COLOR") == "")}
	v.stopped.Go(v.animate)
	return v
}

func (v *treeView) animate() {
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		select {
		case <-v.stop:
			return
		case <-ticker.C:
			v.mu.Lock()
			v.progress.mu.Lock()
			v.draw(time.Now())
			v.progress.mu.Unlock()
			v.mu.Unlock()
		}
	}
}

// The method `show` prints the lines of an event that stay above the tree. It does not
// draw the tree, because a timer does that.
func (v *treeView) show(w api.Watched) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if w.Event == nil {
		if w.Live.Run == "" {
			v.above(v.paint.plain, w.Live.Message)
		}
		return
	}
	if above := eventViewOf(w.Event.Body).above; above != nil {
		color := v.paint.plain
		lines, bad := above(v.progress, *w.Event)
		if bad {
			color = v.paint.red
		}
		v.above(color, lines...)
	}
}

// The method `above` prints lines above the tree.
func (v *treeView) above(color func(string) string, lines ...string) {
	if len(lines) == 0 {
		return
	}
	v.erase()
	for _, l := range lines {
		fmt.Fprintln(v.out, color(tutti.InLine(tutti.Visible(l))))
	}
	v.draw(time.Now())
}

func (v *treeView) say(message string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.above(v.paint.red, message)
}

func (v *treeView) finish(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.draw(time.Now())
	v.drawn = 0 // do not overwrite the last drawing
	if err == nil {
		printSummary(&visibleWriter{file: v.out}, v.progress.job(), time.Now())
	}
}

func (v *treeView) close() {
	close(v.stop)
	v.stopped.Wait()
}

func (v *treeView) erase() {
	if v.drawn > 0 {
		fmt.Fprintf(v.out, "\x1b[%dA\x1b[J", v.drawn)
		v.drawn = 0
	}
}

// The method `draw` draws the tree in place of the last drawing.
func (v *treeView) draw(now time.Time) {
	width, height, err := term.GetSize(int(v.out.Fd()))
	if err != nil {
		width, height = 80, 24
	}
	lines, _ := v.lines(now, false)
	if most := height - 2; len(lines) > most {
		brief, active := v.lines(now, true)
		lines = fit(brief, active, most)
	}
	v.erase()
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(clip(visiblePainted(l), width))
		b.WriteString("\x1b[K\n")
	}
	_, _ = io.WriteString(v.out, b.String())
	v.drawn = len(lines)
}

// The function `fit` shortens a tree to the height of the terminal. The function keeps
// the head and the active steps.
func fit(lines []string, active, most int) []string {
	room := most - 2 // number of lines besides the head and the line about hidden lines
	if len(lines) <= most || room < 1 {
		return lines[:min(len(lines), max(most, 1))]
	}
	from := max(1, min(active, len(lines)-room))
	out := append([]string{lines[0]}, lines[from:from+room]...)
	return append(out, fmt.Sprintf("… %d more lines", len(lines)-1-room))
}

// The method `lines` returns the tree, with the line number of the first active step. If
// `brief` is set, the tree leaves out the nodes of finished steps.
func (v *treeView) lines(now time.Time, brief bool) ([]string, int) {
	j := v.progress.job()
	if j.ID == "" {
		return []string{"starting…"}, 0
	}
	s := j.Summary(now)
	head := fmt.Sprintf("%s  %s  %s  %s", v.paint.bold(string(j.ID)), j.Mode, short(s.Wall), count(s.Runs, "run"))
	if n := running(j); n > 0 {
		head += fmt.Sprintf("  %d running", n)
	}
	if s.Failed > 0 {
		head += v.paint.red(fmt.Sprintf("  %d failed", s.Failed))
	}
	if j.Cause != "" {
		head += v.paint.dim("  because: " + j.Cause)
	}
	out, active := []string{head}, 0
	for i, st := range j.Steps {
		branch, stem := "├─ ", "│  "
		if i == len(j.Steps)-1 {
			branch, stem = "└─ ", "   "
		}
		if st.State == engine.Active && active == 0 {
			active = len(out)
		}
		out = append(out, branch+v.step(st, now))
		if st.State == engine.Done && (brief || len(st.Nodes) > maxDoneNodes) {
			continue
		}
		out = append(out, v.nodes(st, stem, now)...)
	}
	if active == 0 {
		active = len(out)
	}
	return out, active
}

func running(j *engine.Job) int {
	n := 0
	for _, st := range j.Steps {
		for _, node := range st.Nodes {
			if node.State == engine.Active {
				n++
			}
		}
	}
	return n
}

// maxDoneNodes is the largest number of nodes that a finished step still lists.
const maxDoneNodes = 8

func (v *treeView) step(st *engine.Step, now time.Time) string {
	text := v.paint.mark(st.State) + " " + string(st.Name)
	if !st.StartedAt.IsZero() {
		end := st.EndedAt
		if end.IsZero() {
			end = now
		}
		text += "  " + short(end.Sub(st.StartedAt))
	}
	if waits := viewOf(st.Step).waits(st.Step); waits != "" {
		text += v.paint.dim("  " + waits)
		if st.State == engine.Done && st.Message != "" {
			text += v.paint.dim("  (" + st.Message + ")")
		}
	}
	if note := kindNote(st.Step); note != "" {
		text += v.paint.dim("  " + note)
	}
	if n := len(st.Nodes); n > 1 {
		done := 0
		for _, node := range st.Nodes {
			if node.State == engine.Done {
				done++
			}
		}
		text += v.paint.dim(fmt.Sprintf("  %d of %d nodes", done, n))
	}
	return text
}

func (v *treeView) nodes(st *engine.Step, stem string, now time.Time) []string {
	var out []string
	for i, n := range st.Nodes {
		if st.State == engine.Pending {
			return out // a step that has not begun shows no nodes
		}
		branch := "├─ "
		if i == len(st.Nodes)-1 {
			branch = "└─ "
		}
		out = append(out, stem+branch+v.node(n, now))
	}
	return out
}

func (v *treeView) node(n *engine.StepNode, now time.Time) string {
	text := v.paint.mark(n.State) + " " + string(n.Node)
	r := n.Last()
	switch {
	case r == nil:
		return text
	case r.Ended():
		if r.Result != nil && r.Result.Stopped {
			return text + v.paint.dim("  compiles again: "+tutti.OneLine(r.GateWhy))
		}
		text += "  " + ending(r)
		if n.State == engine.Done && !r.Outcome().Good() {
			text += v.paint.dim(", accepted")
		}
		return text
	case r.ClaimedAt.IsZero():
		return text + v.paint.dim("  wanted for "+short(now.Sub(r.WantedAt)))
	}
	text += "  " + short(now.Sub(r.ClaimedAt))
	l := v.progress.live[r.Run]
	if l == nil {
		return text + v.paint.dim("  starting")
	}
	text += "  " + tutti.InLine(l.phase)
	if l.phase == "lock" && l.waiting != "" {
		return text + v.paint.dim("  waits for "+tutti.OneLine(l.waiting))
	}
	if l.phase == "apply" {
		text += fmt.Sprintf("  %d/%d", l.done, max(l.total, l.done))
		if l.changed > 0 {
			text += fmt.Sprintf("  %d changed", l.changed)
		}
		if l.failed > 0 {
			text += v.paint.red(fmt.Sprintf("  %d failed", l.failed))
		}
		text += v.paint.dim("  " + tutti.InLine(l.resource))
	}
	return text
}

// The function `clip` cuts a line at the terminal's width. Escape sequences do not add
// to the width.
func clip(s string, width int) string {
	var b strings.Builder
	room, escape := width, false
	for _, r := range s {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		case room <= 1:
			continue
		default:
			room -= runeWidth(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}

func runeWidth(r rune) int {
	if r == utf8.RuneError || r < ' ' {
		return 0
	}
	return 1
}
