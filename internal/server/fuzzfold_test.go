package server

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/hostile"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/past"
)

// FuzzFold checks that folding any events ends in an error or in a state, and that a second fold
// gives the same state. From this state the engine must reach a point where it decides nothing
// more.
func FuzzFold(f *testing.F) {
	files, err := filepath.Glob("../../testdata/events/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("%d samples, %v", len(files), err)
	}
	var all [][]byte
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, bytes.TrimSpace(raw))
	}
	f.Add(bytes.Join(all, []byte("\n")), uint64(0), []byte(`[]`))
	for seed := range uint64(30) {
		f.Add([]byte(aLog), seed, []byte(`[{"type":"Database","title":"main","parameters":{"a":"\u003c"}}]`))
	}
	f.Fuzz(func(t *testing.T, log []byte, seed uint64, exports []byte) {
		one, two := foldLog(t, log, seed, exports), foldLog(t, log, seed, exports)
		if !reflect.DeepEqual(one, two) {
			t.Error("the same log folds to two states")
		}
		settle(t, one)
		for id, j := range one.Engine.Jobs {
			if s := j.Summary(time.Now()); s.Job != id || s.Runs < 0 {
				t.Errorf("summary %+v of %s", s, id)
			}
		}
		for name, n := range one.Registry.Nodes {
			_, _ = one.Registry.Groups(n), one.Data.Exports(name)
			if _, err := json.Marshal(one.Data.Hiera(name)); err != nil {
				t.Errorf("hiera of %q: %v", name, err)
			}
		}
		if _, err := json.Marshal(one.Data.Values("")); err != nil {
			t.Errorf("values: %v", err)
		}
	})
}

// aLog has the events of one job, as a server wrote them. SET stands for the digest of exports.
const aLog = `{"v":1,"kind":"token.created","at":"2026-01-02T03:04:05Z","by":"operator:ada","data":{"token":"t","hash":"h","name":"db-01","expires":"2026-01-02T03:04:05Z"}}
{"v":1,"kind":"node.enrolled","at":"2026-01-02T03:04:05Z","by":"node:db-01","data":{"node":"db-01","key":"U1","token":"t","groups":["db"]}}
{"v":1,"kind":"job.started","at":"2026-01-02T03:04:05Z","by":"operator:ada","data":{"job":"d-1","mode":"apply","environment":"p","code":"c","plan":{"name":"d","steps":[{"name":"a","timeout":1,"run":{"target":"db","accept":["lost"],"limit":1}},{"name":"w","after":["a"],"timeout":1,"wait":{"value":"shared/hiera/x"}},{"name":"b","after":["a","w"],"per_node":true,"timeout":9,"run":{"target":"db"}}]},"targets":{"a":["db-01"],"b":["db-01"]}}}
{"v":1,"kind":"run.wanted","at":"2026-01-02T03:04:05Z","by":"server","data":{"order":{"run":"r1","node":"db-01","job":"d-1","step":"a","mode":"apply","environment":"p","code":"c","timeout":1,"attempt":1}}}
{"v":1,"kind":"run.claimed","at":"2026-01-02T03:04:06Z","by":"node:db-01","data":{"run":"r1","node":"db-01"}}
{"v":1,"kind":"exports.set","at":"2026-01-02T03:04:07Z","by":"node:db-01","data":{"node":"db-01","run":"r1","job":"d-1","set":"SET","count":1}}
{"v":1,"kind":"run.gated","at":"2026-01-02T03:04:07Z","by":"node:db-01","data":{"run":"r1","verdict":"go","values":["shared/hiera/x"]}}
{"v":1,"kind":"value.set","at":"2026-01-02T03:04:08Z","by":"node:db-01","data":{"key":"shared/hiera/x","value":1.0,"owner":"db-01","run":"r1","job":"d-1"}}
{"v":1,"kind":"run.finished","at":"2026-01-02T03:04:09Z","by":"node:db-01","data":{"result":{"run":"r1","outcome":"changed","counts":{},"started_at":"2026-01-02T03:04:05Z","ended_at":"2026-01-02T03:04:09Z"}}}
{"v":1,"kind":"step.started","at":"2026-01-02T03:04:09Z","by":"server","data":{"job":"d-1","step":"w"}}
{"v":1,"kind":"run.lost","at":"2026-01-02T03:04:09Z","by":"server","data":{"run":"r1","reason":"silent"}}
{"v":1,"kind":"value.unset","at":"2026-01-02T03:04:09Z","by":"operator:ada","data":{"key":"shared/hiera/x"}}
{"v":1,"kind":"job.cancelled","at":"2026-01-02T03:04:09Z","by":"operator:ada","data":{"job":"d-1"}}`

// foldLog folds the lines of a log up to the first line that a server would refuse. The seed
// selects the line that foldLog damages.
func foldLog(t *testing.T, log []byte, seed uint64, exports []byte) *fold.State {
	t.Helper()
	blobs := memory.NewBlobs()
	digest, err := blobs.Put(t.Context(), exports)
	if err != nil {
		t.Fatal(err)
	}
	s, stored := fold.New(), past.New(past.Options{Blobs: blobs})
	lines := bytes.Split(bytes.ReplaceAll(log, []byte("SET"), []byte(digest)), []byte("\n"))
	for i, line := range lines[:min(len(lines), 200)] {
		if uint64(i) == seed%uint64(len(lines)) {
			line = hostile.Mangle(line, seed)
		}
		var e tutti.Event
		if json.Unmarshal(line, &e) != nil {
			return s
		}
		e.Seq = uint64(i) + 1
		if stored.Hydrate(t.Context(), e.Body) != nil {
			return s
		}
		s.Apply(e)
	}
	return s
}

// The function `settle` lets the engine decide until it decides nothing more. The function folds each decision
// in the form that the log stores.
func settle(t *testing.T, s *fold.State) {
	t.Helper()
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 50 {
		bodies := s.Engine.Decide(engine.View{Now: now, Since: now, Seen: func(tutti.NodeName) time.Time { return time.Time{} }, Silence: time.Minute})
		if len(bodies) == 0 {
			return
		}
		for i, b := range bodies {
			if want, ok := b.(*tutti.RunWanted); ok {
				want.Order.Run = tutti.RunID(string(want.Order.Node) + time.Duration(s.Seq+uint64(i)).String())
			}
			raw, err := json.Marshal(tutti.Event{At: now, Body: b})
			var e tutti.Event
			if err != nil || json.Unmarshal(raw, &e) != nil {
				t.Fatalf("decided %s, which the log does not keep: %v", raw, err)
			}
			e.Seq = s.Seq + 1
			s.Apply(e)
		}
	}
	t.Errorf("the engine decides for ever: %+v", s.Engine.Decide(engine.View{Now: now, Since: now, Seen: func(tutti.NodeName) time.Time { return time.Time{} }, Silence: time.Minute}))
}
