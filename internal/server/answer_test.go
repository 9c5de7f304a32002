package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/server"
)

// An answer has no more bytes than what it is made of: a text of `<` is not six times as long.
func TestAnAnswerIsNotEscapedForHTML(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	e := database("x")
	e.Parameters["x"] = json.RawMessage(`"` + strings.Repeat("<&>", 1000) + `"`)
	f.db.Gate(tutti.Gate{Run: order.Run, Exports: []tutti.Export{e}})
	f.db.Finish(order.Run)
	web := f.web1.MustClaim()
	in, err := json.Marshal(tutti.Ask{Run: web.Run, Query: collects})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := f.Handle(t.Context(), f.web1.Key, tutti.OpAsk, in)
	var out tutti.Answered
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil || len(raw) > 4000 || len(out.Exports) != 1 || string(out.Exports[0].Parameters["x"]) != string(e.Parameters["x"]) || raw[len(raw)-1] != '}' {
		t.Errorf("%d bytes: %.200s, %v", len(raw), raw, err)
	}
}

// Who is told that an answer is too large is told whose exports it is made of.
func TestAnAnswerThatIsTooLargeNamesWhoFillsIt(t *testing.T) {
	var exports []tutti.Export
	for i := range 5 {
		for range i + 1 {
			e := database("x")
			e.Node, e.Parameters["x"] = tutti.NodeName(fmt.Sprintf("n%d", i)), json.RawMessage(strings.Repeat("1", 1000))
			exports = append(exports, e)
		}
	}
	err := server.TooLarge(70_000_000, exports)
	wantCode(t, err, tutti.CodeInternal, "the answer has 70000000 bytes, at most 67108864; the largest of 15 exports from 5 nodes are those of n4 (5090 bytes), n3 (4072 bytes), n2 (3054 bytes)")
	wantCode(t, server.TooLarge(70_000_000, nil), tutti.CodeInternal, "at most 67108864")
}
