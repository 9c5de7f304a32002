package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/retain"
)

// laterServer returns a server of a later release. The server's job has kinds of
// steps, events, verdicts and outcomes that this release does not know.
func laterServer(t *testing.T) *httpapi.Client {
	t.Helper()
	raw, err := os.ReadFile("testdata/later.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	answer := func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, "/v1/") {
		case "jobs/watch":
			for line := range strings.Lines(string(raw)) {
				fmt.Fprintf(w, "{\"item\":%s}\n", strings.TrimSpace(line))
			}
			fmt.Fprintln(w, `{"end":true}`)
		case "audit/read":
			fmt.Fprintln(w, `{"item":{"seq":6,"link":"","event":{"v":1,"seq":6,"kind":"node.drained","at":"2026-01-02T03:04:10Z","by":"node:web-01","data":{"node":"web-01"}}}}`)
			fmt.Fprintln(w, `{"end":true}`)
		case "explain/node":
			fmt.Fprintln(w, `{"node":"web-01","standing":{"state":"draining","needs":"reboot","why":"its kernel is old"},
				"active":{"run":"00000000-0000-4000-8000-000000000002","node":"web-01","job":"up-1","plan":"up","step":"kernel","by":"operator:ada","kind":"reboot","mode":"reboot","phase":"rebooting"},
				"changed":[{"query":{"kind":"kernel","key":"version"},"causes":[]}],"moon":{}}`)
		default:
			http.NotFound(w, r)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(s.Close)
	return httpapi.NewClient(s.URL, s.Client())
}

// TestALaterServer checks that every view shows the names of unknown kinds, and that
// the watch continues to the verdict.
func TestALaterServer(t *testing.T) {
	time.Local = time.UTC
	server := laterServer(t)
	var out bytes.Buffer
	for _, args := range [][]string{
		{"job", "watch", "up-1"}, {"job", "watch", "up-1", "--json"}, {"job", "show", "up-1"}, {"job", "show", "up-1", "--json"},
		{"audit", "list"}, {"explain", "node", "web-01"},
	} {
		root := NewRoot(Deps{Connect: func(Connection) (Server, error) { return server, nil }})
		root.SetArgs(args)
		fmt.Fprintf(&out, "# tutti %s\n", strings.Join(args, " "))
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(t.Context())
		var exit CommandExit
		if failed := args[1] == "watch"; failed != errors.As(err, &exit) || failed && exit != ExitFailed || !failed && err != nil {
			t.Errorf("tutti %s: %v", strings.Join(args, " "), err)
		}
		fmt.Fprintln(&out)
	}
	golden(t, "later.txt", out.String())
}

// TestTheTreeOfALaterServer prints the final screen of a terminal.
func TestTheTreeOfALaterServer(t *testing.T) {
	time.Local = time.UTC
	screen, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	p := newProgress()
	v := &treeView{progress: p, out: screen}
	if err := follow(t.Context(), laterServer(t), "up-1", p, v); err != nil {
		t.Fatal(err)
	}
	v.finish(nil)
	drawn, err := os.ReadFile(screen.Name())
	if err != nil {
		t.Fatal(err)
	}
	lines, _ := v.lines(began.Add(time.Minute), false)
	golden(t, "latertree.txt", strings.Join(lines, "\n")+"\n")
	if line := "03:04:10  node.drained by node:web-01 (not known to this release)\n"; !strings.Contains(string(drawn), line) {
		t.Errorf("above the tree: no %q in %q", line, drawn)
	}
}

// TestEveryKindOfEventHasItsRows checks that two tables outside of the root package
// have a row for each kind of event: the table of package retain, and eventViews. The
// test names the table in which a new kind is missing.
func TestEveryKindOfEventHasItsRows(t *testing.T) {
	for _, kind := range tutti.Kinds() {
		if !retain.Known(kind) {
			t.Errorf("%s: package retain has no rule for what a snapshot keeps", kind)
		}
		view, ok := eventViews[kind]
		if !ok {
			t.Errorf("%s: eventViews does not say how people are told", kind)
		}
		// The view's functions must accept an empty body of this kind without a panic.
		e, err := tutti.ViewEvent(fmt.Appendf(nil, `{"v":1,"seq":1,"kind":%q,"at":"2026-01-02T03:04:05Z","by":"server","data":{}}`, kind))
		if err != nil {
			t.Fatal(err)
		}
		if text := what(e.Body); text == "" {
			t.Errorf("%s: the audit trail says nothing", kind)
		}
		p := newProgress()
		linesOf(p, e)
		if view.above != nil {
			view.above(p, e)
		}
	}
	for kind := range eventViews {
		if _, err := tutti.ViewEvent(fmt.Appendf(nil, `{"v":1,"kind":%q,"data":{}}`, kind)); err != nil || !known(kind) {
			t.Errorf("eventViews has a row for %q, and there is no such kind", kind)
		}
	}
}

func known(kind string) bool {
	var e tutti.Event
	err := json.Unmarshal(fmt.Appendf(nil, `{"v":1,"kind":%q,"data":{}}`, kind), &e)
	return err == nil || !strings.Contains(err.Error(), "not known to this release")
}
