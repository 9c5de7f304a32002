package cli

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/durable"
)

// svgMark is in the first lines of each picture. A file with the mark may be replaced by a newer picture.
const svgMark = "<!-- drawn by tutti graph -->"

// svgStyle has the colours of light pages and of dark pages.
const svgStyle = `
    text { font: 11px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #3d4752; }
    .name { font-size: 13px; font-weight: 600; fill: #16202a; }
    .note, .caption { font-style: italic; fill: #5c6773; }
    .back { fill: #ffffff; } .box rect.body { fill: #f5f7f9; stroke: #8a96a3; }
    .frame rect { fill: none; stroke: #b08a2e; stroke-dasharray: 2 3; }
    .edge path { fill: none; stroke: #4a6785; stroke-width: 1.4; stroke-linejoin: round; }
    .edge path.head { fill: #4a6785; stroke: none; }
    .hard path.wide { stroke-width: 4.4; } .hard path.gap { stroke: #ffffff; stroke-width: 1.8; }
    .soft path.line { stroke-dasharray: 7 4; } .order path.line { stroke-dasharray: 1.5 3.5; stroke-width: 2; }
    .good { fill: #1a7f37; } .suspect, .stale, .drifting, .silent { fill: #9a6700; } .waiting { fill: #7a4fc4; }
    .failed { fill: #cf222e; } .new, .unknown, .disabled { fill: #66707b; }
    @media (prefers-color-scheme: dark) {
      text { fill: #b7c1cc; } .name { fill: #edf2f7; } .note, .caption { fill: #98a3af; }
      .back { fill: #12171d; } .box rect.body { fill: #1c232b; stroke: #5d6975; } .frame rect { stroke: #b8923a; }
      .edge path { stroke: #8fb0d3; } .edge path.head { fill: #8fb0d3; } .hard path.gap { stroke: #12171d; }
      .good { fill: #4ac26b; } .suspect, .stale, .drifting, .silent { fill: #d9a520; } .waiting { fill: #b392f0; }
      .failed { fill: #ff7b72; } .new, .unknown, .disabled { fill: #98a3af; }
    }
`

// kindWords says what the kinds of edges are.
var kindWords = map[api.PictureKind]string{
	api.PictureHard:  "values: exist after the publisher has applied",
	api.PictureSoft:  "exports: exist after the publisher has compiled",
	api.PictureOrder: "order of the fleet file",
}

const (
	legendHeight = 26
	legendStep   = 330
	headLength   = 8
)

// printSVG prints a picture. All texts are escaped: the picture runs no script and loads nothing, whatever the server sends.
func printSVG(w io.Writer, p api.Picture, target string) error {
	var b bytes.Buffer
	var kinds []api.PictureKind
	for _, kind := range []api.PictureKind{api.PictureHard, api.PictureSoft, api.PictureOrder} {
		if slices.ContainsFunc(p.Edges, func(e api.PictureEdge) bool { return e.Kind == kind }) {
			kinds = append(kinds, kind)
		}
	}
	width, height := max(p.W, 2*svgMargin+legendStep), p.H+legendHeight*len(kinds)
	columns := max(1, min(len(kinds), (width-2*svgMargin)/legendStep))
	if len(kinds) > 0 {
		height = p.H + legendHeight*((len(kinds)+columns-1)/columns)
	}
	title := "Who reads what others publish"
	if target != "" {
		title += ": " + target
	}
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"title desc\">\n", width, height, width, height)
	fmt.Fprintf(&b, "  %s\n  <title id=\"title\">%s</title>\n  <desc id=\"desc\">%s</desc>\n", svgMark, svgText(title), svgText(describe(p)))
	fmt.Fprintf(&b, "  <style>%s  </style>\n  <rect class=\"back\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", svgStyle, width, height)
	names := map[string]string{}
	for _, box := range p.Boxes {
		names[box.ID] = box.Name
	}
	for _, f := range p.Frames {
		svgFrame(&b, f, names)
	}
	for _, e := range p.Edges {
		svgEdge(&b, e, names)
	}
	for _, box := range p.Boxes {
		svgBox(&b, box)
	}
	for i, kind := range kinds {
		x, y := svgMargin+i%columns*legendStep, p.H+i/columns*legendHeight+6
		fmt.Fprintf(&b, "  <g class=\"edge %s\">%s<text x=\"%d\" y=\"%d\">%s</text></g>\n", svgKind(kind),
			svgLine([][2]int{{x, y}, {x + 40, y}}), x+48, y+4, svgText(kindWords[kind]))
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

const svgMargin = 16

// describe returns the picture in words, for people who cannot see it.
func describe(p api.Picture) string {
	titles := map[string]string{}
	var out []string
	for _, box := range p.Boxes {
		titles[box.ID] = box.Title
		out = append(out, fmt.Sprintf("%s: %s.", box.Title, strings.Join(append(states(box), nonEmpty(box.Note)...), ", ")))
	}
	for _, e := range p.Edges {
		out = append(out, edgeWords(e, titles)+".")
	}
	if p.Coarse {
		out = append(out, "There are too many different questions, so questions about one type, or about keys with the same first part, count as the same.")
	}
	return strings.Join(out, " ")
}

func nonEmpty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

func edgeWords(e api.PictureEdge, names map[string]string) string {
	if e.Kind == api.PictureOrder {
		return fmt.Sprintf("%s comes before %s (order)", names[e.From], names[e.To])
	}
	questions := slices.Clone(e.Questions)
	if e.More > 0 {
		questions = append(questions, fmt.Sprintf("and %d more", e.More))
	}
	return fmt.Sprintf("%s publishes for %s: %s (%s)", names[e.From], names[e.To], strings.Join(questions, ", "), e.Kind)
}

func states(b api.PictureBox) []string {
	var out []string
	for _, s := range b.States {
		out = append(out, stateWords(b, s))
	}
	return out
}

func stateWords(b api.PictureBox, s api.PictureState) string {
	if b.Count == 1 {
		return string(s.State)
	}
	return fmt.Sprintf("%s %s", thousands(uint64(max(0, s.Count))), s.State)
}

func svgFrame(b *bytes.Buffer, f api.PictureFrame, names map[string]string) {
	var in []string
	for _, id := range f.Boxes {
		in = append(in, names[id])
	}
	fmt.Fprintf(b, "  <g class=\"frame\"><title>%s</title>\n", svgText("cycle: "+strings.Join(in, ", ")))
	fmt.Fprintf(b, "    <rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", f.X, f.Y, f.W, f.H)
	for i, line := range f.Caption {
		fmt.Fprintf(b, "    <text class=\"caption\" x=\"%d\" y=\"%d\">%s</text>\n", f.X+svgMargin, f.Y+18+i*svgLineHeight, svgText(line))
	}
	b.WriteString("  </g>\n")
}

const svgLineHeight = 16

func svgEdge(b *bytes.Buffer, e api.PictureEdge, names map[string]string) {
	if len(e.Points) < 2 {
		return
	}
	fmt.Fprintf(b, "  <g class=\"edge %s\"><title>%s</title>%s\n", svgKind(e.Kind), svgText(edgeWords(e, names)), svgLine(e.Points))
	for i, line := range e.Label {
		fmt.Fprintf(b, "    <text x=\"%d\" y=\"%d\">%s</text>\n", e.X+1, e.Y+12+i*svgLineHeight, svgText(line))
	}
	b.WriteString("  </g>\n")
}

// svgKind returns the class of a kind. A kind of a later release is drawn as a soft edge.
func svgKind(kind api.PictureKind) string {
	if _, known := kindWords[kind]; known {
		return string(kind)
	}
	return string(api.PictureSoft)
}

// svgLine returns the line of an edge with its arrow. The double line of a hard edge is a wide line with a narrow one in
// the colour of the page; other kinds do not show the latter.
func svgLine(points [][2]int) string {
	points = slices.Clone(points)
	last, before := points[len(points)-1], points[len(points)-2]
	x, y := sign(last[0]-before[0]), 0
	if x == 0 {
		y = sign(last[1] - before[1])
	}
	points[len(points)-1] = [2]int{last[0] - x*(headLength-1), last[1] - y*(headLength-1)}
	var d strings.Builder
	fmt.Fprintf(&d, "M%d %d", points[0][0], points[0][1])
	for i := 1; i < len(points); i++ {
		from, to := points[i-1], points[i]
		if from[0] == to[0] || from[1] == to[1] {
			fmt.Fprintf(&d, " L%d %d", to[0], to[1])
			continue
		}
		middle := (from[0] + to[0]) / 2
		fmt.Fprintf(&d, " C%d %d %d %d %d %d", middle, from[1], middle, to[1], to[0], to[1])
	}
	const half = 4
	bx, by := last[0]-x*headLength, last[1]-y*headLength
	head := fmt.Sprintf("M%d %d L%d %d L%d %d Z", last[0], last[1], bx-y*half, by+x*half, bx+y*half, by-x*half)
	return fmt.Sprintf(`<path class="line wide" d="%s"/><path class="line gap" d="%s"/><path class="head" d="%s"/>`, d.String(), d.String(), head)
}

func sign(n int) int { return min(1, max(-1, n)) }

func svgBox(b *bytes.Buffer, box api.PictureBox) {
	lines := append([]string{fmt.Sprintf("%s: %s", box.Name, strings.Join(states(box), ", "))}, nonEmpty(box.Note)...)
	if box.Count > 1 {
		names := strings.Join(plain(box.Nodes), ", ")
		if more := box.Count - len(box.Nodes); more > 0 {
			names += fmt.Sprintf(" and %s more", thousands(uint64(more)))
		}
		lines = append(lines, names)
	}
	fmt.Fprintf(b, "  <g class=\"box\"><title>%s</title>\n", svgText(strings.Join(lines, "; ")))
	fmt.Fprintf(b, "    <rect class=\"body\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\"/>\n", box.X, box.Y, box.W, box.H)
	const padding = 12
	x, y := box.X+padding, box.Y+20
	fmt.Fprintf(b, "    <text class=\"name\" x=\"%d\" y=\"%d\">%s</text>\n", x, y, svgText(box.Title))
	for row := range slices.Chunk(box.States, api.PictureRow) {
		y += svgLineHeight
		fmt.Fprintf(b, "    <text x=\"%d\" y=\"%d\">", x, y)
		for i, s := range row {
			shift := ""
			if i > 0 {
				shift = ` dx="8"`
			}
			fmt.Fprintf(b, `<tspan class="%s"%s>%s</tspan>`, svgState(s.State), shift, svgText(stateWords(box, s)))
		}
		b.WriteString("</text>\n")
	}
	if box.Note != "" {
		y += svgLineHeight
		fmt.Fprintf(b, "    <text class=\"note\" x=\"%d\" y=\"%d\">%s</text>\n", x, y, svgText(box.Note))
	}
	left, room := x, box.W-2*padding
	done := 0
	for _, s := range box.States { // the bar: a share of its width for each state
		done += s.Count
		right := x + room*min(done, box.Count)/max(1, box.Count)
		fmt.Fprintf(b, "    <rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"3\"/>\n", svgState(s.State), left, box.Y+box.H-9, max(0, right-left))
		left = right
	}
	b.WriteString("  </g>\n")
}

// svgState returns the class of a state. A state of a later release has the class of an unknown state.
func svgState(s api.NodeState) string {
	switch s {
	case api.NodeGood, api.NodeSuspect, api.NodeStale, api.NodeWaiting, api.NodeFailed, api.NodeDrifting, api.NodeDisabled, api.NodeSilent:
		return string(s)
	case api.NodeNew:
		return "new"
	case api.NodeUnknown:
	}
	return "unknown"
}

// svgText escapes a text for XML. It writes characters that a reader cannot see, or that change the direction of writing,
// as \u and their number.
func svgText(text string) string {
	var shown, out strings.Builder
	for _, r := range tutti.InLine(tutti.Visible(text)) {
		if unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co) || r == '\uFFFE' || r == '\uFFFF' {
			fmt.Fprintf(&shown, `\u%04x`, r)
		} else {
			shown.WriteRune(r)
		}
	}
	_ = xml.EscapeText(&out, []byte(shown.String())) // a strings.Builder returns no error
	return out.String()
}

// checkOutput refuses names for a picture that are no name of a file.
func checkOutput(file string) error {
	if file == "" || file == "-" {
		return tutti.Errorf(tutti.CodeInvalid, "--output %q is not the name of a file: leave --output out to print the picture", file)
	}
	return nil
}

// saveSVG writes a picture to a file. It replaces an existing file only if that file is a picture, too. The file keeps its
// mode.
func saveSVG(file string, content []byte) error {
	mode := fs.FileMode(0o644)
	info, err := os.Lstat(file) // opening a pipe would wait for its writer
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return tutti.Errorf(tutti.CodeConflict, "%s is %s, so it stays as it is: give another --output, or leave --output out to print the picture", file, kindOfFile(info.Mode()))
	default:
		mode = info.Mode().Perm()
		was, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // do not block if the file has become a pipe
		if err != nil {
			return err
		}
		head := make([]byte, 1<<10)
		n, err := io.ReadFull(was, head)
		_ = was.Close()
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) || !bytes.Contains(head[:n], []byte(svgMark)) {
			return tutti.Errorf(tutti.CodeConflict, "%s exists and is not a picture of tutti graph, so it stays as it is: give another --output, or remove the file", file)
		}
	}
	return durable.WriteFile(file, content, mode)
}

// kindOfFile says what is in the place of a regular file.
func kindOfFile(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "not a regular file"
}
