package server_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The function `enclosing` returns a result that encloses a report and a log.
func enclosing(run tutti.RunID, report, log string) wire.Ended {
	out := wire.Ended{Result: servertest.Result(run, tutti.Changed), Enclosed: [][]byte{[]byte(report), []byte(log)}}
	out.Report, out.Log = tutti.DigestOf([]byte(report)), tutti.DigestOf([]byte(log))
	return out
}

// handOver sends a result without its last bytes. The argument `cut` is the number of these bytes.
func handOver(t *testing.T, n *servertest.Node, in wire.Ended, cut int) error {
	t.Helper()
	raw, err := in.Encode()
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.Fleet.Handle(context.Background(), n.Key, wire.OpResult, raw[:len(raw)-cut])
	return err
}

func wantStored(t *testing.T, f fixture, content string, want bool) {
	t.Helper()
	if has, err := f.Blobs.Has(t.Context(), tutti.DigestOf([]byte(content))); err != nil || has != want {
		t.Errorf("%q is stored: %t, %v; want %t", content, has, err, want)
	}
}

func TestAResultBringsWhatItNames(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	f.db.Gate(wire.Gate{Run: order.Run})
	in := enclosing(order.Run, "report", "log")
	wantCode(t, handOver(t, f.db, in, 1), tutti.CodeConflict, "send it again")
	wantStored(t, f, "report", false)
	if err := handOver(t, f.db, in, 0); err != nil {
		t.Fatal(err)
	}
	wantStored(t, f, "report", true)
	wantStored(t, f, "log", true)

	before := len(f.Events())
	if err := handOver(t, f.db, in, 0); err != nil {
		t.Errorf("the same result again: %v", err)
	}
	if err := handOver(t, f.db, enclosing(order.Run, "another report", "log"), 0); err != nil {
		t.Errorf("another result of the same run: %v", err)
	}
	wantStored(t, f, "another report", false)
	if now := len(f.Events()); now != before {
		t.Errorf("%d events by results that came again", now-before)
	}
}

func TestWhatAResultMayNotEnclose(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(f fixture, in *wire.Ended)
		by     func(f fixture) *servertest.Node
		code   tutti.Code
	}{
		"not named": {"nothing would ever ask for it", func(_ fixture, in *wire.Ended) { in.Report = "" }, nil, tutti.CodeInvalid},
		"not here":  {"a result stands for what it names", func(_ fixture, in *wire.Ended) { in.Record = tutti.DigestOf([]byte("x")) }, nil, tutti.CodeConflict},
		"another's": {"a node that has no run could fill the disk", func(fixture, *wire.Ended) {}, func(f fixture) *servertest.Node { return f.web1 }, tutti.CodeRefused},
		"no run":    {"a node that has no run could fill the disk", func(_ fixture, in *wire.Ended) { in.Run = servertest.NewRunID() }, nil, tutti.CodeRefused},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, _, order := started(t, tutti.ModeApply)
			in := enclosing(order.Run, "report", "log")
			tc.change(f, &in)
			by := f.db
			if tc.by != nil {
				by = tc.by(f)
			}
			wantCode(t, handOver(t, by, in, 0), tc.code, "")
			wantStored(t, f, "report", false)
		})
	}
}

// TestWhoHasNoRunLearnsNothingByAResult checks a node that sends a result of another node's run.
// The answer does not tell the node which content the server has.
func TestWhoHasNoRunLearnsNothingByAResult(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	here, err := f.PutBlob(servertest.Operator(), []byte("of somebody"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason string
		run    tutti.RunID
		by     *servertest.Node
	}{
		{"no run", servertest.NewRunID(), f.db},
		{"another's", order.Run, f.web1},
	} {
		var says []string
		for _, digest := range []tutti.Digest{here, tutti.DigestOf([]byte("of nobody"))} {
			result := servertest.Result(tc.run, tutti.Changed)
			result.Report = digest
			err := tc.by.Call(wire.OpResult, result, nil)
			wantCode(t, err, tutti.CodeRefused, "is not a run of")
			says = append(says, fmt.Sprint(err))
		}
		if says[0] != says[1] {
			t.Errorf("%s: %q for what is stored, %q for what is not", tc.reason, says[0], says[1])
		}
	}
}
