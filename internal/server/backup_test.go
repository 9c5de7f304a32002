package server_test

import (
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
)

// copyOf counts the parts of a copied log.
type copyOf struct{ begun, entries, blobs int }

func (c *copyOf) Begin(uint64, tutti.Digest) error { c.begun++; return nil }
func (c *copyOf) Entry(tutti.Entry) error          { c.entries++; return nil }
func (c *copyOf) Blob([]byte) error                { c.blobs++; return nil }

// If acknowledged content is missing, a backup without it would still pass its own check. So the server makes
// no backup, and names the missing content (finding F24). Reports that were dropped on purpose may be missing.
func TestABackupLacksNothing(t *testing.T) {
	cases := map[string]struct {
		gone func(f *fenced) tutti.Digest
		says string // empty if the server makes the backup
	}{
		"nothing":            {func(*fenced) tutti.Digest { return "" }, ""},
		"a file of code":     {func(*fenced) tutti.Digest { return tutti.DigestOf([]byte(servertest.CodeContent)) }, "a file of code"},
		"a manifest of code": {func(f *fenced) tutti.Digest { return f.last("code.pushed").(*tutti.CodePushed).Signed }, "the manifest of code"},
		"exports":            {func(f *fenced) tutti.Digest { return f.last("exports.set").(*tutti.ExportsSet).Set }, "the exports of db-01"},
		"questions":          {func(f *fenced) tutti.Digest { return f.last("run.compiled").(*tutti.RunCompiled).Asked }, "asked"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFenced(t)
			f.Push(oneNode + "grants:\n  - {to: db, exports: [{type: Database, defined: true, most: 50000}]}\n")
			f.converge()
			order := f.claim()
			gate := full(order.Run)
			gate.Exports = []tutti.Export{database("a")}
			f.db.Gate(gate)
			f.db.Gate(gate)
			f.db.Finish(order.Run)
			if digest := tc.gone(f); digest != "" {
				if err := f.Blobs.Delete(t.Context(), digest); err != nil {
					t.Fatal(err)
				}
			}
			got := &copyOf{}
			err := f.CopyLog(t.Context(), got)
			if tc.says == "" {
				if err != nil || got.begun != 1 || got.entries == 0 || got.blobs == 0 {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			wantCode(t, err, tutti.CodeDamaged, tc.says)
			if *got != (copyOf{}) {
				t.Errorf("handed out before: %+v", got)
			}
		})
	}
}

// The method `last` returns the last event of a kind.
func (f *fenced) last(kind string) (out tutti.Body) {
	f.t.Helper()
	for _, e := range f.Events() {
		if e.Body.Kind() == kind {
			out = e.Body
		}
	}
	if out == nil {
		f.t.Fatalf("no %s in the log", kind)
	}
	return out
}
