package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// opened is the output of `tutti ui --json`.
type opened struct{ URL, File string }

// browse FILE: does what a browser does with the page whose `tutti ui --json` wrote FILE. The command writes the bearer
// into the file `bearer`, and the list of nodes into the file `nodes`.
func browse(ts *testscript.TestScript, _ bool, args []string) {
	var at opened
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &at))
	link, err := url.Parse(at.URL)
	ts.Check(err)
	checkOpener(ts, at)
	origin := "http://" + link.Host
	wants := func(what string, want int, from, path, bearer string, in any) []byte {
		body, err := json.Marshal(in)
		ts.Check(err)
		r, err := http.NewRequest(http.MethodPost, origin+path, bytes.NewReader(body))
		ts.Check(err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", from)
		r.Header.Set("Authorization", "Bearer "+bearer)
		resp, err := http.DefaultClient.Do(r)
		ts.Check(err)
		defer resp.Body.Close()
		out, err := io.ReadAll(resp.Body)
		ts.Check(err)
		if resp.StatusCode != want || len(resp.Cookies()) > 0 {
			ts.Fatalf("%s: %s %s, cookies %v", what, resp.Status, out, resp.Cookies())
		}
		return out
	}
	code := map[string]string{"code": strings.TrimPrefix(link.Fragment, "code=")}
	wants("a foreign page with the code", 403, "http://evil.example", "/door/exchange", "", code)
	var in struct{ Bearer, Operator, Server string }
	ts.Check(json.Unmarshal(wants("the code", 200, origin, "/door/exchange", "", code), &in))
	if _, err := os.Stat(filepath.Dir(at.File)); !os.IsNotExist(err) {
		ts.Fatalf("the file that opens the page is still there: %v", err)
	}
	wants("the code again", 401, origin, "/door/exchange", "", code)
	if in.Operator != "admin" || !strings.HasPrefix(in.Server, "https://") || in.Bearer == "" {
		ts.Fatalf("the page says %+v", in)
	}
	ts.Check(os.WriteFile(ts.MkAbs("bearer"), []byte(in.Bearer), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("nodes"), wants("a reading call", 200, origin, "/v1/nodes/list", in.Bearer, nil), 0o600))
	wants("the code as a bearer", 401, origin, "/v1/nodes/list", code["code"], nil)
	wants("another port", 403, "http://127.0.0.1:1", "/v1/nodes/list", in.Bearer, nil)
	wants("a write", 403, origin, "/v1/data/set", in.Bearer, map[string]any{"key": "a", "value": 1})
}

// checkOpener checks the file that leads the browser to the page.
func checkOpener(ts *testscript.TestScript, at opened) {
	info, err := os.Stat(at.File)
	ts.Check(err)
	dir, err := os.Stat(filepath.Dir(at.File))
	ts.Check(err)
	if info.Mode().Perm() != 0o600 || dir.Mode().Perm() != 0o700 {
		ts.Fatalf("the file that opens the page has mode %s, its directory %s", info.Mode(), dir.Mode())
	}
	text := ts.ReadFile(at.File)
	if to := regexp.MustCompile(`content="0; url=([^"]*)"`).FindStringSubmatch(text); len(to) != 2 || to[1] != at.URL {
		ts.Fatalf("the file leads to %q, not to %s", to, at.URL)
	}
}
