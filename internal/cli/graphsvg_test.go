package cli

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// samplePicture returns the golden picture of package explain.
func samplePicture(t testing.TB) api.Picture {
	t.Helper()
	raw, err := os.ReadFile("../explain/testdata/picture.json")
	if err != nil {
		t.Fatal(err)
	}
	var p api.Picture
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func svg(t testing.TB, p api.Picture) string {
	t.Helper()
	var b bytes.Buffer
	if err := printSVG(&b, p, "storage"); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestThePicture(t *testing.T) {
	golden(t, "graph.svg", svg(t, samplePicture(t)))
}

// elements and attributes are everything that a picture may consist of. None of them runs a script or loads anything.
var (
	elements   = []string{"svg", "title", "desc", "style", "rect", "g", "path", "text", "tspan"}
	attributes = []string{"xmlns", "width", "height", "viewBox", "role", "aria-labelledby", "id", "class", "x", "y", "dx", "rx", "d"}
)

// checkSVG checks that a picture is well-formed, has only these elements and attributes, and shows no character that a
// reader cannot see.
func checkSVG(t *testing.T, text string) {
	t.Helper()
	titles, style := 0, ""
	d := xml.NewDecoder(strings.NewReader(text))
	inStyle := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if !slices.Contains(elements, token.Name.Local) {
				t.Fatalf("element %q in\n%s", token.Name.Local, text)
			}
			if inStyle = token.Name.Local == "style"; token.Name.Local == "title" {
				titles++
			}
			for _, a := range token.Attr {
				if !slices.Contains(attributes, a.Name.Local) || strings.Contains(a.Value, "url(") {
					t.Fatalf("attribute %s=%q of %s", a.Name.Local, a.Value, token.Name.Local)
				}
			}
		case xml.EndElement:
			inStyle = false
		case xml.CharData:
			if inStyle {
				style += string(token)
			}
			for _, r := range string(token) {
				if r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)) {
					t.Fatalf("character %U in %q", r, string(token))
				}
			}
		case xml.ProcInst, xml.Directive:
			t.Fatalf("%v", token)
		case xml.Comment:
		}
	}
	if style != svgStyle+"  " || strings.Contains(style, "url") || strings.Contains(style, "@import") {
		t.Fatalf("style %q", style)
	}
	if titles < 1 {
		t.Fatal("no title")
	}
}

// Whatever names and questions a server sends, the picture is well-formed, runs nothing, loads nothing, and shows what it
// cannot show as text.
func FuzzSVG(f *testing.F) {
	for _, text := range []string{
		"web-01", `<script>alert(1)</script>`, `"/><image href="https://evil.example/x"/>`, "]]>", "--><script/>", "&amp;&#x0;", "a\u202eb\u200bc\u2066d\ufeff",
		"\x1b[31m\x00\r\n\t", "\xff\xfe\xed\xa0\x80", "\ufffe\uffff\U0010ffff", "</style><script>", "javascript:x", "}@import url(x);{",
	} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		p := samplePicture(t)
		for i := range p.Boxes {
			box := &p.Boxes[i]
			box.Name, box.Title, box.Note = a, b, a+b
			box.Nodes = []tutti.NodeName{tutti.NodeName(a), tutti.NodeName(b)}
			box.States = append(box.States, api.PictureState{State: api.NodeState(a), Count: len(b)})
		}
		for i := range p.Edges {
			p.Edges[i].Questions, p.Edges[i].Label, p.Edges[i].Kind = []string{a, b}, []string{b, a}, api.PictureKind(b)
		}
		for i := range p.Frames {
			p.Frames[i].Caption = []string{a, b}
		}
		p.Boxes[0].ID, p.Edges[0].From, p.Frames[0].Boxes = b, a, []string{a, b}
		var out bytes.Buffer
		if err := printSVG(&out, p, a); err != nil {
			t.Fatal(err)
		}
		checkSVG(t, out.String())
	})
}

// A picture may be of a later release, or of a server that sends nonsense. The command must not crash.
func TestStrangePictures(t *testing.T) {
	checkSVG(t, svg(t, api.Picture{}))
	p := samplePicture(t)
	p.Coarse = true
	p.Boxes[0].Count, p.Boxes[0].States = 0, []api.PictureState{{State: "dreaming", Count: -3}}
	p.Boxes[1].Nodes, p.Boxes[1].States = nil, nil
	p.Edges[0].Points, p.Edges[1].Points, p.Edges[2].Points = nil, [][2]int{{1, 1}}, [][2]int{{1, 1}, {1, 1}}
	p.Edges[3].From, p.Edges[3].Kind = "unknown", "gravity"
	text := svg(t, p)
	checkSVG(t, text)
	for _, want := range []string{"0 dreaming", `class="unknown"`, `class="edge soft"`, "questions about one type"} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
}

// The command replaces a picture and nothing else.
func TestSaveThePicture(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "fleet.svg")
	picture := []byte(svg(t, samplePicture(t)))
	for range 2 {
		if err := saveSVG(file, picture); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o644 || info.Size() != int64(len(picture)) {
		t.Errorf("%v, %v", info, err)
	}
	other := filepath.Join(dir, "tutti.yaml")
	for _, content := range []string{"", "fleet: test\n", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n" + strings.Repeat(" ", 4096)} {
		if err := os.WriteFile(other, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := saveSVG(other, picture)
		if got, _ := os.ReadFile(other); tutti.CodeOf(err) != tutti.CodeConflict || string(got) != content {
			t.Errorf("the file with %q: %v", content, err)
		}
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := saveSVG(file, picture); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the picture does not keep its mode: %v, %v", info, err)
	}
	if err := saveSVG(filepath.Join(dir, "no", "x.svg"), picture); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("the directory has %v", left)
	}
}

// The command says what is in the place of the picture. It does not wait for a pipe, and does not replace a link.
func TestOnlyAFileIsAPicture(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	picture := []byte(svg(t, samplePicture(t)))
	if err := errors.Join(os.WriteFile(at("real.svg"), picture, 0o644), os.Symlink("real.svg", at("link")), os.Symlink("none.svg", at("dangling")),
		syscall.Mkfifo(at("pipe"), 0o600), os.Mkdir(at("directory"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		at("pipe"): "a pipe", at("link"): "a symbolic link", at("dangling"): "a symbolic link", at("directory"): "a directory",
	} {
		before, err := os.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		err = saveSVG(name, picture)
		if tutti.CodeOf(err) != tutti.CodeConflict || !strings.Contains(err.Error(), " is "+want+",") {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := os.Lstat(name); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s was replaced: %v", name, err)
		}
	}
	for _, name := range []string{"", "-"} {
		root := NewRoot(Deps{})
		root.SetArgs([]string{"graph", "--svg", "--output", name})
		root.SetErr(io.Discard)
		if err := root.Execute(); tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), "leave --output out to print") {
			t.Errorf("--output %q: %v", name, err)
		}
	}
}
