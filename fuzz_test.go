package tutti_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/hostile"
	"github.com/tutti-project/tutti/wire"
)

// FuzzEvent checks each entry of the log. If the decoder refuses the entry, the error has a code. If the decoder
// accepts the entry, the event stays the same when it is encoded and decoded again. A viewer accepts each entry that
// the decoder accepts.
func FuzzEvent(f *testing.F) {
	files, err := filepath.Glob("testdata/events/*.json")
	if err != nil || len(files) < len(bodies) {
		f.Fatalf("%d samples, %v", len(files), err)
	}
	for i, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, uint64(0))
		f.Add(raw, uint64(i+1))
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		mangled := hostile.Mangle(raw, seed)
		viewed, unseen := tutti.ViewEvent(mangled)
		if unseen == nil {
			if _, err := json.Marshal(viewed); err != nil {
				t.Errorf("viewed, and cannot be handed on: %v", err)
			}
		}
		var e tutti.Event
		if err := json.Unmarshal(mangled, &e); err != nil {
			if e.Body != nil {
				t.Errorf("refused, and yet %+v", e)
			}
			checkRefusal(t, err)
			return
		}
		if unseen != nil {
			t.Errorf("accepted, and yet it cannot be viewed: %v", unseen)
		}
		once, err := json.Marshal(e)
		if err != nil {
			t.Fatalf("accepted, and the log cannot keep it: %v", err)
		}
		var again tutti.Event
		if err := json.Unmarshal(once, &again); err != nil {
			t.Fatalf("what the log keeps is refused: %v\n%s", err, once)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%v\n%s\nbecomes\n%s", err, once, twice)
		}
		if e.Body.Kind() != again.Body.Kind() || e.Body.ID() != again.Body.ID() || e.Body.Kind() == "" {
			t.Errorf("%s of %q becomes %s of %q", e.Body.Kind(), e.Body.ID(), again.Body.Kind(), again.Body.ID())
		}
	})
}

// FuzzClaimed checks the answer to a claim. If this release does not know everything in the order, Validate must refuse
// the order.
func FuzzClaimed(f *testing.F) {
	for i, raw := range []string{
		`{"order":{"run":"` + string(aRun) + `","node":"` + string(aNode) + `","job":"deploy-1","step":"db","mode":"noop","environment":"production","code":"` + string(aDigest) + `","timeout":3600000000000,"attempt":2,"tags":["a"],"debug":true},"expect":"turn"}`,
		`{"order":{"run":"` + string(aRun) + `","node":"` + string(aNode) + `","kind":"reboot","nice":19}}`,
		`{"expect":"change"}`,
	} {
		f.Add([]byte(raw), uint64(0))
		f.Add([]byte(raw), uint64(i+1))
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		var c wire.Claimed
		if json.Unmarshal(hostile.Mangle(raw, seed), &c) != nil || c.Order == nil {
			return
		}
		if err := c.Validate(); err != nil {
			checkRefusal(t, err)
			return
		}
		once, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var again wire.Claimed
		if err := json.Unmarshal(once, &again); err != nil || again.Unknown != nil {
			t.Fatalf("%v, %v: what was read is not read again\n%s", err, again.Unknown, once)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%v\n%s\nbecomes\n%s", err, once, twice)
		}
	})
}

// checkRefusal also accepts an error of encoding/json itself, which refuses invalid JSON before our
// code runs.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	code := tutti.CodeOf(err)
	if code != tutti.CodeInvalid && code != tutti.CodeRefused && !strings.HasPrefix(err.Error(), "invalid character") && err.Error() != "unexpected end of JSON input" && !strings.HasPrefix(err.Error(), "exceeded max depth") {
		t.Errorf("code %q of %v", code, err)
	}
	if len(err.Error()) > tutti.MaxErrorText {
		t.Errorf("an error of %d bytes: %.100s…", len(err.Error()), err)
	}
}

// FuzzManifest checks that an accepted manifest names only files of its own tree, with names that a
// file system accepts.
func FuzzManifest(f *testing.F) {
	for i, raw := range []string{
		`{"v":1,"environment":"production","files":{"manifests/site.pp":{"digest":"` + string(aDigest) + `","size":3,"exec":true},"a/l":{"link":"../manifests/site.pp"}}}`,
		`{"v":1,"environment":"production","files":{"a/b":{"link":"../../x"},"l":{"link":"d/.."},"l/x":{"link":"y"},"x/../y":{"link":"z"}}}`,
	} {
		f.Add([]byte(raw), uint64(0))
		f.Add([]byte(raw), uint64(i+1))
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		var m tutti.CodeManifest
		if json.Unmarshal(hostile.Mangle(raw, seed), &m) != nil {
			return
		}
		if err := m.Validate(); err != nil {
			checkRefusal(t, err)
			return
		}
		for name, file := range m.Files {
			if filepath.IsAbs(name) || filepath.Clean(name) != name || strings.HasPrefix(name, "..") || strings.Contains(name, "\x00") || file.Size < 0 {
				t.Errorf("accepted %q: %+v", name, file)
			}
			to := filepath.Join("/tree", filepath.Dir(name), file.Link)
			if file.Link != "" && to != "/tree" && !strings.HasPrefix(to, "/tree/") {
				t.Errorf("accepted %q -> %q", name, file.Link)
			}
			for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
				if _, ok := m.Files[dir]; ok {
					t.Errorf("accepted %q below %q", name, dir)
				}
			}
		}
	})
}

// FuzzPattern checks that a pattern, compared part by part, covers exactly the right keys.
func FuzzPattern(f *testing.F) {
	for _, s := range [][2]string{{"node/web/**", "node/web.example.net/x"}, {"**", "a"}, {"a/**", "a"}, {"a", "a"}, {"a/b**", "a/bc"}, {"", ""}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, key string) {
		if err := tutti.ValidatePattern(pattern); err != nil {
			checkRefusal(t, err)
			return
		}
		if err := tutti.ValidateKey(key); err != nil {
			checkRefusal(t, err)
			return
		}
		want := pattern == "**" || pattern == key
		if prefix, deep := strings.CutSuffix(pattern, "/**"); deep && !want {
			above, parts := strings.Split(prefix, "/"), strings.Split(key, "/")
			want = len(parts) > len(above)
			for i, p := range above {
				want = want && parts[i] == p
			}
		}
		if got := tutti.MatchPattern(pattern, key); got != want {
			t.Errorf("%q covers %q: %v", pattern, key, got)
		}
		if tutti.MatchPattern(pattern, key) && tutti.DangerousPattern(key) && !tutti.DangerousPattern(pattern) {
			t.Errorf("%q is not dangerous and covers %q, which is", pattern, key)
		}
	})
}
