package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const dir = "../../ui"

// TestDistIsBuiltFromTheSources: the committed page is exactly the page that the sources give.
func TestDistIsBuiltFromTheSources(t *testing.T) {
	built, err := build(dir)
	if err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadDir(filepath.Join(dir, "dist"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range committed {
		if built[f.Name()] == nil {
			t.Errorf("dist/%s: the sources do not give this file; run: make ui", f.Name())
		}
	}
	for name, want := range built {
		got, err := os.ReadFile(filepath.Join(dir, "dist", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("dist/%s is not what the sources give (%v); run: make ui", name, err)
		}
	}
}

// TestTheFirstLoadIsSmall: at most four files with 60 kB. The browser loads index.html and what it names, and the worker.
func TestTheFirstLoadIsSmall(t *testing.T) {
	built, err := build(dir)
	if err != nil {
		t.Fatal(err)
	}
	first := []string{"index.html", "worker.js"}
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllSubmatch(built["index.html"], -1) {
		switch link := string(m[1]); {
		case strings.HasPrefix(link, "/ui/"):
			first = append(first, strings.TrimPrefix(link, "/ui/"))
		case !strings.HasPrefix(link, "data:"):
			t.Errorf("index.html loads %s", link)
		}
	}
	size := 0
	for _, name := range first {
		if built[name] == nil {
			t.Errorf("%s: the page loads it, and the sources do not give it", name)
		}
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(built[name])
		_ = z.Close()
		size += b.Len()
	}
	if size > 60_000 || len(first) > 4 {
		t.Errorf("the first load has %d files with %d bytes after gzip; at most 4 files with 60,000 bytes", len(first), size)
	}
	t.Logf("%d files, %d bytes after gzip", len(first), size)
}

// never are the ways by which a text becomes HTML, a script or a link. Preact's text nodes and attributes are the only way
// from data to the page.
var never = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|createContextualFragment|DOMParser|srcdoc|` +
	`\beval\(|new Function|setTimeout\(\s*["'` + "`" + `]|setHTMLUnsafe|parseHTMLUnsafe|javascript:|\bstyle="|\bstyle='|\bon[a-z]+="|document\.cookie|localStorage|` +
	`https?://|//[a-z0-9.-]+\.[a-z]{2,}/|\bimport\(|@import|url\(`)

// TestSourcesMakeNoHTML is the linter of ui/src. Each pattern must also find something in a text that is wrong.
func TestSourcesMakeNoHTML(t *testing.T) {
	for _, wrong := range []string{
		`el.innerHTML = x`, `<p dangerouslySetInnerHTML={{__html: x}}>`, `eval(x)`, `setTimeout("x", 1)`, `href="javascript:x"`, `<p style="x">`,
		`<img onerror="x">`, `document.cookie`, `fetch("https://evil.example")`, `<script src="//evil.example/x.js">`, `import("x")`, `background: url(x)`,
	} {
		if !never.MatchString(wrong) {
			t.Errorf("the linter does not find %s", wrong)
		}
	}
	seen := 0
	err := filepath.WalkDir(filepath.Join(dir, "src"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		seen++
		text, err := os.ReadFile(name)
		for i, line := range strings.Split(string(text), "\n") {
			line = strings.ReplaceAll(line, "http://www.w3.org/2000/svg", "") // the name of SVG in the page's icon
			if found := never.FindString(line); found != "" {
				t.Errorf("%s:%d: %s", name, i+1, found)
			}
		}
		if lines := strings.Count(string(text), "\n"); lines > 600 {
			t.Errorf("%s: %d lines, at most 600", name, lines)
		}
		return err
	})
	if err != nil || seen < 5 {
		t.Errorf("%d sources: %v", seen, err)
	}
}

// TestVendoredFilesAreUnchanged: nobody has changed a foreign file, and no foreign file is without a digest.
func TestVendoredFilesAreUnchanged(t *testing.T) {
	vendor := filepath.Join(dir, "vendor")
	sums, err := os.ReadFile(filepath.Join(vendor, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		want[name] = sum
	}
	err = filepath.WalkDir(vendor, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(vendor, name)
		if err != nil || rel == "README.md" || rel == "SHA256SUMS" {
			return err
		}
		text, err := os.ReadFile(name)
		if got := fmt.Sprintf("%x", sha256.Sum256(text)); got != want[rel] {
			t.Errorf("ui/vendor/%s: the digest is %s, want %s", rel, got, want[rel])
		}
		delete(want, rel)
		return err
	})
	if err != nil || len(want) > 0 {
		t.Errorf("missing: %v %v", want, err)
	}
}
